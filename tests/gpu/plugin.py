"""The cost of NCCL's profiler plugin interface for all-reduces of 128 KB to 64 MB. Modes alternate in one process.

    xpu-top run -- torchrun --nproc_per_node 2 plugin.py [ROUNDS]

Modes: `off` (no events of NCCL), `governed` (the default), `always` (events of calls and launches at every
operation). Rank 0 prints one JSON line per size: the median time of an all-reduce in a sequence, in microseconds, and
the median over rounds of the ratio to `off`, in percent. Under `XPU_TOP_DISABLE=1`, or without xpu-top, there is one
mode.
"""

import ctypes
import json
import os
import random
import statistics
import sys
import time

import torch
import torch.distributed as dist

MODES = {"off": 0, "governed": 1, "always": 2}
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 20
SIZES = [1 << shift for shift in range(17, 27)]

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
process = ctypes.CDLL(None)
try:
    switch = process.xpu_top_set_plugin
except AttributeError:
    switch = None
modes = list(MODES) if switch else ["none"]


def measured(tensor, times):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    dist.barrier()
    begin.record()
    for _ in range(times):
        dist.all_reduce(tensor)
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1e3 / times


for size in SIZES:
    tensor = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda")
    times = max(50, min(1000, (64 << 20) // size * 4))
    for _ in range(3):
        measured(tensor, times)
    took = {mode: [] for mode in modes}
    order = random.Random(size)
    for _ in range(ROUNDS):
        # The same order on all ranks.
        for mode in order.sample(modes, len(modes)):
            if switch:
                switch(MODES[mode])
                # The hook's thread writes NCCL's mask in its next round.
                time.sleep(0.12)
            took[mode].append(measured(tensor, times))
    if rank == 0:
        line = {"bytes": size, "us": {mode: round(statistics.median(took[mode]), 2) for mode in modes}}
        if switch:
            line["over_off_pct"] = {
                mode: round(100 * (statistics.median(a / b for a, b in zip(took[mode], took["off"])) - 1), 2)
                for mode in modes
                if mode != "off"
            }
        print(json.dumps(line), flush=True)
if switch:
    switch(1)
dist.destroy_process_group()
