"""JAX: one call makes ten updates, in `lax.scan`. Each update is a step."""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import optax

WIDTH, EACH = 2048 if jax.default_backend() == "gpu" else 32, 10
log = open(os.environ.get("ZOO_LOG", "/dev/null") + ".0", "w", buffering=1)
key = jax.random.PRNGKey(0)
parameters = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(4)]
optimizer = optax.sgd(1e-4, momentum=0.9)
state = optimizer.init(parameters)


@jax.jit
def updates(carry, xs):
    def update(carry, x):
        def loss_of(parameters):
            h = x
            for weight in parameters:
                h = jax.nn.gelu(h @ weight)
            return jnp.mean(h**2)

        parameters, state = carry
        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        moves, state = optimizer.update(gradients, state, parameters)
        return (optax.apply_updates(parameters, moves), state), loss

    return jax.lax.scan(update, carry, xs)


xs, step, carry = jax.random.normal(key, (EACH, 4096, WIDTH)), 0, (parameters, state)
while True:
    carry, losses = updates(carry, xs)
    losses.block_until_ready()
    step += EACH
    log.write(f"{time.time():.6f} {step}\n")
