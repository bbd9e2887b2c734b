"""flax and optax under JAX, with the batch sharded over all devices: a jitted step that donates its state. It logs
the loss every 20 steps, and evaluates every 100."""

import os
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy
import optax
from flax.training.train_state import TrainState
from jax.sharding import Mesh, NamedSharding, PartitionSpec

BIG = jax.default_backend() == "gpu"
WIDTH, TOKENS, ROWS, WORDS = (768, 256, 32, 8192) if BIG else (32, 8, 4, 64)
log = open(os.environ.get("ZOO_LOG", "/dev/null") + ".0", "w", buffering=1)
mesh = Mesh(numpy.array(jax.devices()), ("data",))
by_rows, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())


class Block(nn.Module):
    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(jnp.ones(x.shape[:2]))
        x = x + nn.SelfAttention(num_heads=4, dtype=jnp.bfloat16)(nn.LayerNorm()(x), mask)
        h = nn.gelu(nn.Dense(4 * WIDTH, dtype=jnp.bfloat16)(nn.LayerNorm()(x)))
        return x + nn.Dense(WIDTH, dtype=jnp.bfloat16)(h)


class Model(nn.Module):
    @nn.compact
    def __call__(self, tokens):
        x = nn.Embed(WORDS, WIDTH)(tokens) + self.param("place", nn.initializers.normal(0.02), (TOKENS, WIDTH))
        for _ in range(6 if BIG else 2):
            x = Block()(x)
        return nn.Dense(WORDS, dtype=jnp.bfloat16)(nn.LayerNorm()(x))


def loss_of(apply, parameters, tokens):
    logits = apply({"params": parameters}, tokens)[:, :-1].astype(jnp.float32)
    return optax.softmax_cross_entropy_with_integer_labels(logits, tokens[:, 1:]).mean()


def train(state, tokens):
    loss, gradients = jax.value_and_grad(lambda parameters: loss_of(state.apply_fn, parameters, tokens))(state.params)
    return state.apply_gradients(grads=gradients), loss


train = jax.jit(train, donate_argnums=0, in_shardings=(everywhere, by_rows), out_shardings=(everywhere, everywhere))
evaluate = jax.jit(lambda state, tokens: loss_of(state.apply_fn, state.params, tokens))
random = numpy.random.default_rng(0)


def batch():
    return jax.device_put(random.integers(WORDS, size=(ROWS, TOKENS), dtype=numpy.int32), by_rows)


model = Model()
schedule = optax.warmup_cosine_decay_schedule(0.0, 3e-4, 500, 1_000_000)
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=0.1))
parameters = model.init(jax.random.PRNGKey(0), batch())["params"]
state = jax.device_put(TrainState.create(apply_fn=model.apply, params=parameters, tx=optimizer), everywhere)
step = 0
while True:
    state, loss = train(state, batch())
    step += 1
    log.write(f"{time.time():.6f} {step}\n")
    if step % 20 == 0:
        print(step, float(loss), flush=True)
    if step % 100 == 0:
        print(step, "evaluation", numpy.mean([float(evaluate(state, batch())) for _ in range(10)]), flush=True)
