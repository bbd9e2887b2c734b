"""What the hook costs, paired in one process: modes alternate in blocks of steps, a barrier before each block.

    torchrun --nproc_per_node 2 overhead.py ddp WIDTH BLOCKS TOKENS BATCH [ROUNDS]

Separate processes differ by more than the effect; within one, the median of the ratios of neighbouring blocks shows it.
Prints one line of JSON from rank 0.
"""

import ctypes
import json
import os
import statistics
import sys
import time

import model as transformer
import torch
import torch.distributed as dist

STEPS_PER_BLOCK = 10

kind, width, blocks, tokens, batch = sys.argv[1], *map(int, sys.argv[2:6])
rounds = int(sys.argv[6]) if len(sys.argv) > 6 else 30
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
    for _ in range(STEPS_PER_BLOCK):
        step()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS_PER_BLOCK * 1e3


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
    return statistics.median((a / b - 1) * 100 for a, b in zip(times[name], times["off"]))


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
                "default_pct": round(against_off("default"), 3),
                "everything_pct": round(against_off("everything"), 3),
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
