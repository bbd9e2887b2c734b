"""What the hook costs, paired in one process: modes alternate in blocks of steps, a barrier before each block.

    torchrun --nproc_per_node 2 overhead.py ddp WIDTH BLOCKS TOKENS BATCH [ROUNDS [STEPS_PER_BLOCK]]

Separate processes differ by more than the effect; within one, the median of the ratios of neighbouring blocks shows it.
Prints one line of JSON from rank 0.
"""

import ctypes
import json
import os
import random
import statistics
import sys
import time

import model as transformer
import torch
import torch.distributed as dist

kind, width, blocks, tokens, batch = sys.argv[1], *map(int, sys.argv[2:6])
rounds = int(sys.argv[6]) if len(sys.argv) > 6 else 30
steps_per_block = int(sys.argv[7]) if len(sys.argv) > 7 else 10
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))

hook = ctypes.CDLL(None)
hook.xpu_top_counter.restype = ctypes.c_uint64


def off():
    hook.xpu_top_set_enabled(0)


def default():
    hook.xpu_top_set_enabled(1)
    hook.xpu_top_set_sampling(16, 4)


def everything():
    hook.xpu_top_set_enabled(1)
    hook.xpu_top_set_sampling(1, 1)


MODES = {"off": off, "default": default, "everything": everything}
step = transformer.trainer(transformer.build(kind, width, blocks), width, tokens, batch)


def block() -> float:
    """Milliseconds of one step, over a block."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(steps_per_block):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps_per_block * 1e3


for _ in range(10):
    step()
times = {name: [] for name in MODES}
for number in range(rounds):
    order = list(MODES)
    order = order[number % 3 :] + order[: number % 3]
    for name in order:
        dist.barrier()
        MODES[name]()
        times[name].append(block())

default()
before = hook.xpu_top_counter(b"gemms") + hook.xpu_top_counter(b"collectives")
step()
torch.cuda.synchronize()
operations = hook.xpu_top_counter(b"gemms") + hook.xpu_top_counter(b"collectives") - before


def against_off(name):
    """Median of the paired differences to `off` in percent, and its 95 % interval by bootstrap."""
    ratios = [(a / b - 1) * 100 for a, b in zip(times[name], times["off"])]
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(x, 3) for x in (statistics.median(ratios), medians[50], medians[1950])]


if dist.get_rank() == 0:
    quartiles = statistics.quantiles(times["off"], n=4)
    base = statistics.median(times["off"])
    # The effect on nothing: neighbouring blocks of the same mode.
    noise = statistics.median(abs(a / b - 1) * 100 for a, b in zip(times["off"][1:], times["off"]))
    print(
        json.dumps(
            {
                "job": f"{kind} {width}x{blocks} tokens {tokens} batch {batch}",
                "pairs": rounds,
                "step_ms": round(base, 3),
                "operations_per_step": operations,
                "default_pct": against_off("default"),
                "everything_pct": against_off("everything"),
                "off_iqr_pct": round((quartiles[2] - quartiles[0]) / base * 100, 3),
                "off_against_off_pct": round(noise, 3),
                "untimed": hook.xpu_top_counter(b"untimed"),
                "dropped": hook.xpu_top_counter(b"dropped"),
            }
        ),
        flush=True,
    )
dist.barrier()
dist.destroy_process_group()
