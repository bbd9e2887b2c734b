"""A program of one framework that measures its own rates: own_rates.py KIND OUT [SECONDS]

Every step multiplies and then reduces over all GPUs, each part timed by the program's clock up to the end of its work
on the GPU. It runs for 4 s, rests for 5 s, runs for SECONDS, and rests for 5 s: the counts of calls between the two
rests are those of whole steps. Each rank writes OUT.RANK, a line of JSON per state:

{"state": "rests"|"runs", "steps": n, "gemms": n, "collectives": n, "achieved": TFLOPS, "tflops": TFLOPS,
 "bus_gb_s": GB/s, "step_ms": ms, "result": "..."}

GEMMs and collectives are those of one GPU. `result` is the result of the steps before the first rest, bit for bit.
With ROUNDS, the program makes this number of steps and writes only the result.
"""

import ast
import ctypes
import json
import os
import pathlib
import sys
import time

KIND, OUT = sys.argv[1:3]
SECONDS = float(sys.argv[3]) if len(sys.argv) > 3 else 40.0
ROUNDS = int(os.environ.get("ROUNDS", 0))
RANK, WORLD, LOCAL = (int(os.environ.get(name, default)) for name, default in
                      (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))  # fmt: skip
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
# Equal results in every run.
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")
# JAX needs 1 to 2 ms for the launch of each part, which its own rates include: parts of 100 ms.
SIDE, GEMMS, REDUCES, ELEMENTS = 8192, 64, 128, 64 << 20
# Reductions of a tensor in one call of JAX.
TIMES = 4
FLOPS = 2.0 * SIDE**3


class Part:
    """What a step does. `flops`, `gemms`, `collectives` and `bus_bytes` are those of one step on one GPU. `is_pure`: it
    does nothing else than GEMMs."""

    def __init__(self, work, flops=0.0, gemms=0, collectives=0, bus_bytes=0.0, is_pure=True):
        self.work, self.flops, self.gemms, self.is_pure = work, flops, gemms, is_pure
        self.collectives, self.bus_bytes = collectives, bus_bytes


def bus_bytes(gpus):
    return REDUCES * 4.0 * ELEMENTS * 2 * (gpus - 1) / gpus


def of_torch(multiply_with=None, reduce_with=None, decorate=lambda function: function):
    import torch

    torch.cuda.set_device(LOCAL)
    torch.manual_seed(0)
    a, b = (torch.randn(SIDE, SIDE, device="cuda", dtype=torch.bfloat16) / SIDE**0.5 for _ in range(2))
    multiplied = multiply_with or torch.matmul

    @decorate
    def chain(a, b):
        for _ in range(GEMMS):
            a = multiplied(a, b)
        return a

    result = {}

    def multiply():
        result["is"] = chain(a, b)
        torch.cuda.synchronize()

    def digest():
        return result["is"].view(torch.int16).long().sum().item()

    parts = [Part(multiply, flops=GEMMS * FLOPS, gemms=GEMMS)]
    if WORLD > 1:
        tensors = [torch.ones(ELEMENTS, device="cuda") for _ in range(2)]
        reduce_one = reduce_with or all_reduce()

        def reduce():
            for number in range(REDUCES):
                reduce_one(tensors[number % 2])
            torch.cuda.synchronize()

        parts.append(Part(reduce, collectives=REDUCES, bus_bytes=bus_bytes(WORLD)))
    return parts, digest


def all_reduce():
    import torch
    import torch.distributed as dist

    dist.init_process_group("nccl", device_id=torch.device("cuda", LOCAL))
    return lambda tensor: dist.all_reduce(tensor, op=dist.ReduceOp.AVG)


def torch_compile():
    import torch

    return of_torch(decorate=torch.compile)


def nccl_ctypes():
    """As in vLLM's pynccl: functions that ctypes looked up."""
    import importlib.util

    import torch
    import torch.distributed as dist

    class Unique(ctypes.Structure):
        _fields_ = [("bytes", ctypes.c_byte * 128)]

    torch.cuda.set_device(LOCAL)
    (wheel,) = importlib.util.find_spec("nvidia.nccl").submodule_search_locations
    nccl = ctypes.CDLL(str(pathlib.Path(wheel, "lib", "libnccl.so.2")))
    nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Unique, ctypes.c_int]
    nccl.ncclAllReduce.argtypes = [
        ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
    ]  # fmt: skip
    store, _, _ = next(dist.rendezvous("env://"))
    unique, communicator = Unique(), ctypes.c_void_p()
    if RANK == 0:
        assert nccl.ncclGetUniqueId(ctypes.byref(unique)) == 0
        store.set("nccl", bytes(unique))
    unique = Unique.from_buffer_copy(store.get("nccl"))
    assert nccl.ncclCommInitRank(ctypes.byref(communicator), WORLD, unique, RANK) == 0

    def reduce_one(tensor):
        at, stream = tensor.data_ptr(), torch.cuda.current_stream().cuda_stream
        assert nccl.ncclAllReduce(at, at, tensor.numel(), 7, 4, communicator, stream) == 0

    return of_torch(reduce_with=reduce_one)


def triton():
    """Its own GEMM, whose FLOPs only the program knows."""
    import torch
    import triton as tr
    import triton.language as tl

    @tr.jit
    def own_matmul(a, b, c, side, block: tl.constexpr, depth: tl.constexpr):
        # Neighbours share rows and columns in the cache.
        number, across = tl.program_id(0), side // block
        group = number // (8 * across)
        row, column = group * 8 + number % 8, number % (8 * across) // 8
        rows, columns = row * block + tl.arange(0, block), column * block + tl.arange(0, block)
        inner = tl.arange(0, depth)
        sums = tl.zeros((block, block), dtype=tl.float32)
        for at in range(0, side, depth):
            left = tl.load(a + rows[:, None] * side + (at + inner)[None, :])
            right = tl.load(b + (at + inner)[:, None] * side + columns[None, :])
            sums = tl.dot(left, right, sums)
        tl.store(c + rows[:, None] * side + columns[None, :], sums.to(tl.bfloat16))

    out = [torch.empty(SIDE, SIDE, device=f"cuda:{LOCAL}", dtype=torch.bfloat16) for _ in range(2)]
    turn = [0]

    def multiplied(a, b):
        turn[0] += 1
        c = out[turn[0] % 2]
        own_matmul[((SIDE // 128) ** 2,)](a, b, c, SIDE, 128, 64, num_warps=8, num_stages=3)
        return c

    parts, digest = of_torch(multiply_with=multiplied)
    parts[0].gemms = 0
    return parts, digest


def cupy():
    import cupy as cp
    from cupy.cuda import nccl

    cp.cuda.Device(LOCAL).use()
    a = cp.random.RandomState(0).standard_normal((SIDE, SIDE), dtype=cp.float32)
    a, b = (a / SIDE**0.5).astype(cp.float16), (a.T / SIDE**0.5).astype(cp.float16)
    c, result = [cp.empty_like(a) for _ in range(2)], {}

    def multiply():
        left = a
        for number in range(GEMMS):
            left = cp.matmul(left, b, out=c[number % 2])
        result["is"] = left
        cp.cuda.get_current_stream().synchronize()

    place = pathlib.Path(f"{OUT}.unique")
    if RANK == 0:
        place.with_suffix(".new").write_text(repr(nccl.get_unique_id()))
        place.with_suffix(".new").rename(place)
    while not place.exists():
        time.sleep(0.05)
    communicator = nccl.NcclCommunicator(WORLD, ast.literal_eval(place.read_text()), RANK)
    tensors = [cp.ones(ELEMENTS, dtype=cp.float32) for _ in range(2)]

    def reduce():
        for number in range(REDUCES):
            at = tensors[number % 2].data.ptr
            communicator.allReduce(at, at, ELEMENTS, nccl.NCCL_FLOAT32, 4, cp.cuda.get_current_stream().ptr)
        cp.cuda.get_current_stream().synchronize()

    def digest():
        return int(result["is"].view(cp.int16).astype(cp.int64).sum())

    return [
        Part(multiply, flops=GEMMS * FLOPS, gemms=GEMMS),
        Part(reduce, collectives=REDUCES, bus_bytes=bus_bytes(WORLD)),
    ], digest


def of_jax():
    """One process per GPU, or one for all."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    if WORLD > 1:
        port = int(os.environ["MASTER_PORT"]) - 1
        jax.distributed.initialize(f"localhost:{port}", WORLD, RANK, local_device_ids=[LOCAL])
    gpus = len(jax.devices())
    mesh = Mesh(np.array(jax.devices()), ("gpu",))
    everywhere, split = NamedSharding(mesh, PartitionSpec()), NamedSharding(mesh, PartitionSpec("gpu"))

    def maker(shape, dtype, seed):
        def make():
            x = jax.random.normal(jax.random.PRNGKey(seed), shape, dtype=jnp.float32) / SIDE**0.5
            return x.astype(dtype)

        return jax.jit(make, out_shardings=split if len(shape) == 3 else everywhere)

    a, b = maker((gpus, SIDE, SIDE), jnp.bfloat16, 0)(), maker((SIDE, SIDE), jnp.bfloat16, 1)()

    @jax.jit
    @lambda function: jax.shard_map(
        function, mesh=mesh, in_specs=(PartitionSpec("gpu"), PartitionSpec()), out_specs=PartitionSpec("gpu")
    )
    def chain(a, b):
        for _ in range(GEMMS):
            a = (a[0] @ b)[None]
        return a

    result = {}

    def multiply():
        result["is"] = chain(a, b)
        result["is"].block_until_ready()

    def digest():
        mine = np.asarray(result["is"].addressable_shards[0].data)
        return int(mine.view(np.int16).astype(np.int64).sum())

    make = maker((gpus, ELEMENTS, 1), jnp.float32, 2)
    held = [[make() for _ in range(REDUCES // TIMES)]]

    @lambda function: jax.jit(function, donate_argnums=0)
    @lambda function: jax.shard_map(
        function, mesh=mesh, in_specs=PartitionSpec("gpu"), out_specs=PartitionSpec("gpu"), check_vma=False
    )
    def reduced(tensors):
        for _ in range(TIMES):
            tensors = [jax.lax.psum(tensor, "gpu") for tensor in tensors]
        return tensors

    def reduce():
        held[0] = reduced(held[0])
        jax.block_until_ready(held[0])

    return [
        Part(multiply, flops=GEMMS * FLOPS, gemms=GEMMS),
        Part(reduce, collectives=REDUCES, bus_bytes=bus_bytes(gpus)),
    ], digest


def flax():
    """A training step of dense layers, with the batch split over all GPUs of the process."""
    import flax.linen as nn
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    gpus = len(jax.devices())
    mesh = Mesh(np.array(jax.devices()), ("data",))
    by_rows, everywhere = NamedSharding(mesh, PartitionSpec("data")), NamedSharding(mesh, PartitionSpec())
    layers = 4

    class Model(nn.Module):
        @nn.compact
        def __call__(self, x):
            for _ in range(layers):
                x = nn.relu(nn.Dense(SIDE, dtype=jnp.bfloat16, param_dtype=jnp.bfloat16)(x))
            return x

    model, optimizer = Model(), optax.sgd(1e-4)
    x = jax.device_put(jax.random.normal(jax.random.PRNGKey(0), (gpus * SIDE, SIDE), dtype=jnp.bfloat16), by_rows)
    parameters = jax.device_put(model.init(jax.random.PRNGKey(1), x[:1]), everywhere)
    state = [parameters, jax.device_put(optimizer.init(parameters), everywhere), None]

    @lambda function: jax.jit(function, donate_argnums=(0, 1))
    def train(parameters, inner, x):
        def loss_of(parameters):
            return jnp.mean(jnp.square(model.apply(parameters, x).astype(jnp.float32)))

        loss, gradients = jax.value_and_grad(loss_of)(parameters)
        updates, inner = optimizer.update(gradients, inner, parameters)
        return optax.apply_updates(parameters, updates), inner, loss

    def step():
        state[:] = train(state[0], state[1], x)
        state[2].block_until_ready()

    # No gradient of the first layer's input.
    gemms = 3 * layers - 1
    # XLA chooses the number of all-reduces.
    return [Part(step, flops=gemms * FLOPS, gemms=gemms, collectives=None, is_pure=False)], lambda: float(
        state[2]
    ).hex()


def plain():
    return of_torch()


def jax_processes():
    return of_jax()


def jax_devices():
    return of_jax()


def main():
    parts, digest = globals()[KIND]()
    log = open(f"{OUT}.{RANK}", "w", buffering=1)
    steps, taken = 0, []

    def step():
        nonlocal steps
        ends = [time.monotonic()]
        for part in parts:
            part.work()
            ends.append(time.monotonic())
        steps += 1
        taken.append(ends)

    def write(state, **more):
        counts = {"gemms": steps * sum(part.gemms for part in parts)}
        if all(part.collectives is not None for part in parts):
            counts["collectives"] = steps * sum(part.collectives for part in parts)
        log.write(json.dumps({"state": state, "at": time.time(), "steps": steps, **counts, **more}) + "\n")

    def rates():
        recent = [ends for ends in taken if ends[0] > taken[-1][-1] - 25]
        said = {"step_ms": (recent[-1][-1] - recent[0][0]) / len(recent) * 1e3}
        for number, part in enumerate(parts):
            spent = sum(ends[number + 1] - ends[number] for ends in recent)
            if part.flops:
                if part.is_pure:
                    said["tflops"] = part.flops * len(recent) / spent / 1e12
                said["achieved"] = part.flops * len(recent) / (recent[-1][-1] - recent[0][0]) / 1e12
            if part.bus_bytes:
                said["bus_gb_s"] = part.bus_bytes * len(recent) / spent / 1e9
        return said

    def run(count):
        for _ in range(count):
            step()

    if ROUNDS:
        run(ROUNDS)
        pathlib.Path(f"{OUT}.{RANK}").write_text(f"{digest()}\n")
        return
    # Ranks run the same number of steps, because collectives match.
    run(50)
    write("rests", result=digest())
    time.sleep(5)
    taken.clear()
    run(10)
    mean = (taken[-1][-1] - taken[0][0]) / len(taken)
    more = agreed(max(int(SECONDS / mean), 20))
    for number in range(more):
        step()
        if number % 50 == 49 or number == more - 1:
            write("runs", **rates())
    write("rests", **rates())
    time.sleep(6)


def agreed(count):
    """Rank 0's count, for all ranks."""
    place = pathlib.Path(f"{OUT}.count")
    if RANK == 0:
        place.with_suffix(".new").write_text(str(count))
        place.with_suffix(".new").rename(place)
    while not place.exists():
        time.sleep(0.02)
    return int(place.read_text())


main()
