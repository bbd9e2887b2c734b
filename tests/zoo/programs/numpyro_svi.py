"""Variational inference with NumPyro: a Bayesian network, one jitted update a step."""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax
import jax.numpy as jnp
import numpyro
from numpyro import distributions
from numpyro.infer import SVI, Trace_ELBO
from numpyro.infer.autoguide import AutoNormal

BIG = jax.default_backend() == "gpu"
WIDTH, ROWS = (2048, 16384) if BIG else (16, 8)
log = open(os.environ.get("ZOO_LOG", "/dev/null") + ".0", "w", buffering=1)
x = jax.random.normal(jax.random.PRNGKey(0), (ROWS, WIDTH))
y = jnp.sin(x[:, 0])


def model(x, y):
    normal = distributions.Normal(0.0, 1.0 / WIDTH**0.5)
    first = numpyro.sample("first", normal.expand([WIDTH, WIDTH]).to_event(2))
    second = numpyro.sample("second", normal.expand([WIDTH]).to_event(1))
    mean = jnp.tanh(x @ first) @ second
    numpyro.sample("y", distributions.Normal(mean, 0.1).to_event(1), obs=y)


svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(1e-3), Trace_ELBO())
state = svi.init(jax.random.PRNGKey(1), x, y)
update = jax.jit(svi.update)
step = 0
while True:
    state, loss = update(state, x, y)
    step += 1
    if step % 25 == 0:
        print(step, float(loss), flush=True)
    log.write(f"{time.time():.6f} {step}\n")
