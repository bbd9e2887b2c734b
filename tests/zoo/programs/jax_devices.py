"""JAX with one process and all GPUs of the host: the batch is split over them."""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

WIDTH = 2048
log = open(f"{os.environ.get('ZOO_LOG', '/dev/null')}.0", "w", buffering=1)
mesh = Mesh(np.array(jax.devices()), ("data",))
print(len(jax.devices()), "devices", flush=True)
replicated, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("data"))
optimizer = optax.adamw(1e-4)
key = jax.random.PRNGKey(0)
parameters = [jax.random.normal(key, (WIDTH, WIDTH)) / WIDTH**0.5 for _ in range(6)]
parameters, state = jax.device_put((parameters, optimizer.init(parameters)), replicated)


@jax.jit
def update(parameters, state, x):
    def loss_of(parameters):
        h = x
        for weight in parameters:
            h = jax.nn.relu(h @ weight)
        return jnp.mean(h**2)

    loss, gradients = jax.value_and_grad(loss_of)(parameters)
    updates, state = optimizer.update(gradients, state, parameters)
    return optax.apply_updates(parameters, updates), state, loss


x, step = jax.device_put(jax.random.normal(key, (8192, WIDTH)), split), 0
while True:
    parameters, state, loss = update(parameters, state, x)
    step += 1
    log.write(f"{time.time():.6f} {step}\n")
    if step % 10 == 0:
        loss.block_until_ready()
