"""What the hook costs, paired in one process: modes alternate in blocks of steps, a barrier before each block.

    torchrun --nproc_per_node 2 overhead.py [OPTIONS] JOB:WIDTH:BLOCKS:TOKENS:BATCH...

Separate processes differ by more than the effect; within one, the median of the ratios of neighbouring blocks shows it.
Prints one line of JSON for each job from rank 0. Jobs: see jobs.py.
"""

import argparse
import ctypes
import gc
import json
import os
import random
import statistics
import time

import torch
import torch.distributed as dist
from jobs import JOBS

arguments = argparse.ArgumentParser()
arguments.add_argument("jobs", nargs="+")
arguments.add_argument("--rounds", type=int, default=30)
arguments.add_argument("--block-ms", type=float, default=250)
arguments.add_argument("--profiler", type=int, default=0, help="blocks under torch.profiler, after all others")
arguments.add_argument("--nccl-example", help="NCCL's example profiler plugin, built")
given = arguments.parse_args()

device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
if given.nccl_example:
    # Loaded, and silent until it is asked to record.
    os.environ.update(NCCL_PROFILER_PLUGIN=given.nccl_example, NCCL_PROFILE_EVENT_MASK="0")
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()

hook = ctypes.CDLL(None)
hook.xpu_top_counter.restype = ctypes.c_uint64
hook.xpu_top_set_budget.argtypes = [ctypes.c_double]
plugin = ctypes.CDLL(given.nccl_example) if given.nccl_example else None

# Everything of NCCL's profiler but the proxy's network events.
NCCL_EVENTS = 1 | 2 | 4 | 64 | 256 | 512 | 1024 | 2048


def counter(name):
    return hook.xpu_top_counter(name.encode())


def off():
    hook.xpu_top_set_enabled(0)


def default():
    hook.xpu_top_set_enabled(1)
    hook.xpu_top_set_budget(0.1)


def everything():
    hook.xpu_top_set_enabled(1)
    hook.xpu_top_set_budget(-1.0)


def nccl_example():
    off()
    plugin["_Z20exampleProfilerStartiPKc"](NCCL_EVENTS, None)


def quiet():
    if plugin:
        plugin["_Z19exampleProfilerStopv"]()


MODES = {"off": off, "default": default, "everything": everything}
if plugin:
    MODES["nccl_example"] = nccl_example


def block(step, steps):
    """Milliseconds of one step, over a block."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def against(those, base):
    """Median of the paired differences in percent, and its 95 % interval by bootstrap."""
    ratios = [(a / b - 1) * 100 for a, b in zip(those, base)]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(x, 3) for x in (statistics.median(ratios), medians[50], medians[1950])]


def measure(name):
    kind, *sizes = name.split(":")
    step = JOBS[kind](*map(int, sizes))
    for _ in range(12):
        step()
    # All ranks take blocks of the same length, near the one asked for.
    took = torch.tensor([block(step, 10)], device="cuda")
    dist.broadcast(took, 0)
    steps = max(3, round(given.block_ms / took.item()))
    default()
    # Time for the governor to find its rates.
    until = time.monotonic() + 3
    going = torch.ones(1, device="cuda")
    while going.item():
        block(step, steps)
        going.fill_(float(time.monotonic() < until))
        dist.broadcast(going, 0)

    times = {mode: [] for mode in MODES}
    timed = 0
    for number in range(given.rounds):
        order = list(MODES)
        shift = number % len(order)
        for mode in order[shift:] + order[:shift]:
            dist.barrier()
            MODES[mode]()
            before = counter("timed")
            times[mode].append(block(step, steps))
            timed += counter("timed") - before if mode == "default" else 0
            quiet()

    default()
    before = counter("gemms") + counter("collectives") + counter("point_to_point")
    step()
    torch.cuda.synchronize()
    operations = counter("gemms") + counter("collectives") + counter("point_to_point") - before
    profiled, unprofiled = [], []
    for _ in range(given.profiler):
        off()
        dist.barrier()
        unprofiled.append(block(step, steps))
        dist.barrier()
        with torch.profiler.profile():
            profiled.append(block(step, steps))
    if rank == 0:
        base = statistics.median(times["off"])
        quartiles = statistics.quantiles(times["off"], n=4)
        shown = {
            "job": name,
            "pairs": given.rounds,
            "steps_per_block": steps,
            "step_ms": round(base, 3),
            "operations_per_step": operations,
            "timed_per_step": round(timed / steps / given.rounds, 2),
            **{f"{mode}_pct": against(times[mode], times["off"]) for mode in MODES if mode != "off"},
            # The effect on nothing: a block of the same mode against the one before it.
            "noise_pct": against(times["off"][1:], times["off"]),
            "off_iqr_pct": round((quartiles[2] - quartiles[0]) / base * 100, 3),
            "untimed": counter("untimed"),
            "dropped": counter("dropped"),
        }
        if profiled:
            shown["torch_profiler_pct"] = against(profiled, unprofiled)
        print(json.dumps(shown), flush=True)


for job in given.jobs:
    measure(job)
    gc.collect()
    torch.cuda.empty_cache()
dist.barrier()
dist.destroy_process_group()
