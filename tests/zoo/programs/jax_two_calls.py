"""JAX with separate jitted calls in a step: the gradients of two micro-batches, their sum, and the update."""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp

BIG = jax.default_backend() == "gpu"
WIDTH, ROWS, DEPTH = (4096, 4096, 4) if BIG else (16, 8, 2)
log = open(os.environ.get("ZOO_LOG", "/dev/null") + ".0", "w", buffering=1)
keys = jax.random.split(jax.random.PRNGKey(0), DEPTH + 1)
weights = [jax.random.normal(key, (WIDTH, WIDTH), jnp.float32) / WIDTH**0.5 for key in keys[1:]]


def loss_of(weights, rows):
    h = rows
    for weight in weights:
        h = jax.nn.relu(h @ weight)
    return jnp.mean((h - rows) ** 2)


gradients_of = jax.jit(jax.value_and_grad(loss_of))
add = jax.jit(lambda one, other: jax.tree.map(jnp.add, one, other))
update = jax.jit(lambda weights, gradients: jax.tree.map(lambda w, g: w - 1e-3 * g, weights, gradients))
key, step = keys[0], 0
while True:
    total = None
    for _ in range(2):
        key, of_batch = jax.random.split(key)
        loss, gradients = gradients_of(weights, jax.random.normal(of_batch, (ROWS, WIDTH), jnp.float32))
        total = gradients if total is None else add(total, gradients)
    weights = update(weights, total)
    step += 1
    if step % 20 == 0:
        print(step, float(loss), flush=True)
    log.write(f"{time.time():.6f} {step}\n")
