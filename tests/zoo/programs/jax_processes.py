"""JAX with two processes: data parallel over all devices; XLA reduces the gradients with NCCL."""

import functools
import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
# Uses a port other than torchrun's store.
jax.distributed.initialize(
    f"localhost:{int(os.environ['MASTER_PORT']) - 1}", world, rank, local_device_ids=[int(os.environ["LOCAL_RANK"])]
)

WIDTH, ROWS = 2048, 4096
log = open(f"{os.environ.get('ZOO_LOG', '/dev/null')}.{rank}", "w", buffering=1)
mesh = Mesh(np.array(jax.devices()), ("data",))
replicated, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
optimizer = optax.adamw(1e-4)


@functools.partial(jax.jit, out_shardings=replicated)
def begin():
    parameters = [jax.random.normal(jax.random.PRNGKey(layer), (WIDTH, WIDTH)) / WIDTH**0.5 for layer in range(6)]
    return parameters, optimizer.init(parameters)


@functools.partial(jax.jit, out_shardings=replicated)
def update(parameters, state, x):
    def loss_of(parameters):
        h = x
        for weight in parameters:
            h = jax.nn.relu(h @ weight)
        return jnp.mean(h**2)

    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, loss


parameters, state = begin()
own = np.random.default_rng(rank).standard_normal((ROWS, WIDTH), dtype=np.float32)
x, step = jax.make_array_from_process_local_data(split, own), 0
while True:
    parameters, state, loss = update(parameters, state, x)
    step += 1
    log.write(f"{time.time():.6f} {step}\n")
    if step % 10 == 0:
        loss.block_until_ready()
