"""The hook's cost, measured in pairs in one process: modes alternate in blocks of steps, with a barrier before each
block.

A block of each mode is between two blocks with the hook off, and is compared with their mean, so a drift of clocks or
temperature cancels. Each round has the modes in a new order. The same comparison between blocks with the hook off
gives the noise.

    torchrun --nproc_per_node 2 overhead.py [OPTIONS] JOB:WIDTH:BLOCKS:TOKENS:BATCH...

Separate processes would differ by more than the effect. Rank 0 prints one line of JSON per job. Jobs: see jobs.py.
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
from torch.optim.optimizer import _global_optimizer_post_hooks

arguments = argparse.ArgumentParser()
arguments.add_argument("jobs", nargs="+")
arguments.add_argument("--rounds", type=int, default=30)
arguments.add_argument("--block-ms", type=float, default=200)
arguments.add_argument("--profiler", type=int, default=0, help="blocks under torch.profiler, after all others")
arguments.add_argument("--modes", help="beside off, with commas: default everything counting unmarked")
arguments.add_argument("--nccl-example", help="NCCL's example profiler plugin, built")
given = arguments.parse_args()

device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
if given.nccl_example:
    # With this mask the plugin is loaded, but records nothing.
    os.environ.update(NCCL_PROFILER_PLUGIN=given.nccl_example, NCCL_PROFILE_EVENT_MASK="0")
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()

hook = ctypes.CDLL(None)
hook.xpu_top_counter.restype = ctypes.c_uint64
hook.xpu_top_set_budget.argtypes = [ctypes.c_double]
plugin = ctypes.CDLL(given.nccl_example) if given.nccl_example else None

# The function of the hook that PyTorch calls after each optimizer step is switched off too.
post_hooks, attached = _global_optimizer_post_hooks, {}

# All events of NCCL's profiler except the proxy's network events.
NCCL_EVENTS = 1 | 2 | 4 | 64 | 256 | 512 | 1024 | 2048


def counter(name):
    return hook.xpu_top_counter(name.encode())


def off():
    hook.xpu_top_set_enabled(0)
    attached.update(post_hooks)
    post_hooks.clear()


def default():
    hook.xpu_top_set_enabled(1)
    hook.xpu_top_set_budget(0.1)
    post_hooks.update(attached)


def everything():
    hook.xpu_top_set_enabled(1)
    hook.xpu_top_set_budget(-1.0)
    post_hooks.update(attached)


def counting():
    """Counts without timing."""
    default()
    hook.xpu_top_set_budget(0.0)


def unmarked():
    """Optimizers mark no steps, so no step is timed."""
    default()
    post_hooks.clear()


def nccl_example():
    off()
    plugin["_Z20exampleProfilerStartiPKc"](NCCL_EVENTS, None)


def quiet():
    if plugin:
        plugin["_Z19exampleProfilerStopv"]()


MODES = {"off": off, "default": default, "everything": everything, "counting": counting, "unmarked": unmarked}
wanted = (given.modes or "default,everything").split(",")
MODES = {mode: change for mode, change in MODES.items() if mode in ["off", *wanted]}
if plugin:
    MODES["nccl_example"] = nccl_example


def block(step, steps):
    """Milliseconds per step, over a block."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps * 1e3


def median(ratios):
    """The median of the differences in percent, and its 95 % interval by bootstrap."""
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(x, 3) for x in (statistics.median(ratios), medians[50], medians[1950])]


def between(blocks):
    """Compares each block, except the first and last, with the mean of its neighbours. Returns differences in
    percent, by mode.

    Every second block is off, and is compared with the two nearest blocks that are off.
    """
    ratios = {mode: [] for mode in MODES}
    for before, (mode, took), after in zip(blocks, blocks[1:], blocks[2:]):
        if mode != "off":
            ratios[mode].append((2 * took / (before[1] + after[1]) - 1) * 100)
    quiet_ones = [took for mode, took in blocks if mode == "off"]
    for before, took, after in zip(quiet_ones, quiet_ones[1:], quiet_ones[2:]):
        ratios["off"].append((2 * took / (before + after) - 1) * 100)
    return ratios


def measure(name):
    kind, *sizes = name.split(":")
    step = JOBS[kind](*map(int, sizes))
    for _ in range(12):
        step()
    # All ranks use blocks of the same length, near the requested one.
    took = torch.tensor([block(step, 10)], device="cuda")
    dist.broadcast(took, 0)
    steps = max(3, round(given.block_ms / took.item()))
    default()
    # Gives the governor time to set its rates.
    until = time.monotonic() + 3
    going = torch.ones(1, device="cuda")
    while going.item():
        block(step, steps)
        going.fill_(float(time.monotonic() < until))
        dist.broadcast(going, 0)

    blocks, timed, spent = [], 0, 0
    shuffled = random.Random(1)

    def run_block(mode):
        nonlocal timed, spent
        dist.barrier()
        MODES[mode]()
        before, spent_before = counter("timed"), counter("spent")
        blocks.append((mode, block(step, steps)))
        if mode == "default":
            timed += counter("timed") - before
            spent += counter("spent") - spent_before
        quiet()

    run_block("off")
    for _ in range(given.rounds):
        order = [mode for mode in MODES if mode != "off"]
        shuffled.shuffle(order)
        for mode in order:
            run_block(mode)
            run_block("off")

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
        ratios = between(blocks)
        quiet_ones = [took for mode, took in blocks if mode == "off"]
        base = statistics.median(quiet_ones)
        quartiles = statistics.quantiles(quiet_ones, n=4)
        shown = {
            "job": name,
            "pairs": given.rounds,
            "steps_per_block": steps,
            "step_ms": round(base, 3),
            "operations_per_step": operations,
            "optimizer_hooks": len(attached),
            "timed_per_step": round(timed / steps / given.rounds, 2),
            # What the hook itself counts as its cost.
            "charged_pct": round(spent / steps / given.rounds / base / 1e4, 3),
            "event_cost_ns": counter("event_cost"),
            "event_gap_ns": counter("event_gap"),
            **{f"{mode}_pct": median(ratios[mode]) for mode in MODES if mode != "off"},
            "noise_pct": median(ratios["off"]),
            "off_iqr_pct": round((quartiles[2] - quartiles[0]) / base * 100, 3),
            "untimed": counter("untimed"),
            "dropped": counter("dropped"),
        }
        if profiled:
            shown["torch_profiler_pct"] = median([(a / b - 1) * 100 for a, b in zip(profiled, unprofiled)])
        print(json.dumps(shown), flush=True)


for job in given.jobs:
    measure(job)
    gc.collect()
    torch.cuda.empty_cache()
dist.barrier()
dist.destroy_process_group()
