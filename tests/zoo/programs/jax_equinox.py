"""Equinox and optax under JAX: a jitted step of a filtered model, new batches from the host."""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import equinox
import jax
import jax.numpy as jnp
import numpy
import optax

BIG = jax.default_backend() == "gpu"
WIDTH, ROWS, DEPTH = (2048, 4096, 6) if BIG else (16, 8, 2)
log = open(os.environ.get("ZOO_LOG", "/dev/null") + ".0", "w", buffering=1)
model = equinox.nn.MLP(WIDTH, WIDTH, WIDTH, DEPTH, jax.nn.gelu, key=jax.random.PRNGKey(0))
optimizer = optax.lion(1e-5)
state = optimizer.init(equinox.filter(model, equinox.is_array))


@equinox.filter_value_and_grad
def loss_of(model, rows):
    return jnp.mean((jax.vmap(model)(rows) - rows) ** 2)


@equinox.filter_jit(donate="all-except-first")
def train(rows, model, state):
    loss, gradients = loss_of(model, rows)
    updates, state = optimizer.update(gradients, state, equinox.filter(model, equinox.is_array))
    return equinox.apply_updates(model, updates), state, loss


random = numpy.random.default_rng(0)
step = 0
while True:
    rows = random.standard_normal((ROWS, WIDTH), dtype=numpy.float32)
    model, state, loss = train(rows, model, state)
    step += 1
    if step % 10 == 0:
        loss.block_until_ready()
    log.write(f"{time.time():.6f} {step}\n")
