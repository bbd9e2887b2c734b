"""Traces started from outside (`xpu-top kineto`), compared with torch.profiler in the program, in the same training.

    xpu-top run --job beside -- torchrun --nproc_per_node 2 kineto_beside.py XPU_TOP ddp|fsdp FOLDER [PHASE...]

A phase traces ten steps: "kineto" by `xpu-top kineto`, "profiler" by `torch.profiler`; "quiet" waits as long and traces
nothing. By default, each of the first two three times, in turn. 200 steps run before and after each phase. Prints JSON:
the kernels per step (all, and NCCL's) and their time, rank by rank and by phase, and the median step of each 200.
"""

import collections
import gzip
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

WIDTH, BLOCKS, TOKENS, BATCH = 2048, 8, 1024, 4
STEPS, BETWEEN = 10, 200

xpu_top, kind, folder, *phases = sys.argv[1:]
phases = phases or ["kineto", "profiler", "profiler", "kineto", "kineto", "profiler"]
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
step = transformer.trainer(transformer.build(kind, WIDTH, BLOCKS), WIDTH, TOKENS, BATCH)
flag = torch.zeros(1, device="cuda")


def train(steps, took):
    for _ in range(steps):
        begin = time.monotonic()
        step()
        torch.cuda.synchronize()
        took.append((time.monotonic() - begin) * 1e3)


def all_train_until(over):
    """Trains in blocks of ten steps until rank 0 ends the training."""
    took = []
    while True:
        train(10, took)
        flag.fill_(float(rank == 0 and over()))
        dist.broadcast(flag, 0)
        if flag.item():
            return took


def counted(trace):
    """The kernels launched between optimizer calls, and their milliseconds: NCCL's, and all others.

    The profiler cuts a trace's first step. Kineto started from outside does not wait for the GPU at its end, so
    the last kernels of the last steps are missing. A step is whole only if each of its launches has its kernel.
    """
    events = json.loads(trace)["traceEvents"]
    ends = sorted(
        event["ts"] + event["dur"]
        for event in events
        if event.get("cat") == "user_annotation" and event["name"].startswith("Optimizer.step#")
    )
    launched = {
        event["args"]["correlation"]: (event["ts"], "LaunchKernel" in event["name"])
        for event in events
        if event.get("cat") in ("cuda_runtime", "cuda_driver") and "correlation" in event.get("args", {})
    }
    kernels = [
        event for event in events if event.get("cat") == "kernel" and event["args"].get("correlation") in launched
    ]
    of_kernels = {event["args"]["correlation"] for event in kernels}
    cut = [at for number, (at, is_kernel) in launched.items() if is_kernel and number not in of_kernels]
    steps = [(begin, end) for begin, end in itertools.pairwise(ends) if not any(begin <= at < end for at in cut)]
    counts, times = collections.Counter(), collections.Counter()
    for event in kernels:
        at, _ = launched[event["args"]["correlation"]]
        if any(begin <= at < end for begin, end in steps):
            what = "nccl" if "nccl" in event["name"].lower() else "compute"
            counts[what] += 1
            times[what] += event["dur"] / 1e3
    return counts, times, len(steps)


def line(by, where, trace):
    counts, times, steps = counted(trace)
    each = {
        what: {"count": counts[what] / steps, "ms": round(times[what] / steps, 3)} for what in sorted(counts) if steps
    }
    return {"kind": kind, "by": by, "rank": where, "whole steps": steps, **each}


def traces_into(out):
    """Rank 0 requests the traces of all ranks while all train. Returns the answer."""
    command = [xpu_top, "kineto", "--job", "beside", "--steps", str(STEPS), "-o", str(out)]
    asked = []
    asking = threading.Thread(target=lambda: asked.append(subprocess.run(command, capture_output=True, text=True)))
    if rank == 0:
        asking.start()
    all_train_until(lambda: not asking.is_alive())
    return asked


def traced_from_outside(number):
    out = pathlib.Path(folder) / str(number)
    asked = traces_into(out)
    if rank != 0:
        return []
    print(
        json.dumps({"exit code": asked[0].returncode, "said": asked[0].stdout[-300:], "stderr": asked[0].stderr[-300:]})
    )
    paths = sorted(out.glob("*.json.gz"))
    return [line("xpu-top kineto", path.name, gzip.decompress(path.read_bytes())) for path in paths]


def traced_in_the_program(number):
    with torch.profiler.profile() as profile:
        train(STEPS, [])
    file = pathlib.Path(folder) / f"own-{number}-{rank}.json"
    profile.export_chrome_trace(str(file))
    dist.barrier()
    if rank != 0:
        return []
    files = [file.with_name(f"own-{number}-{other}.json") for other in range(dist.get_world_size())]
    return [line("torch.profiler", other, own.read_bytes()) for other, own in enumerate(files)]


def quiet(_):
    began = time.monotonic()
    all_train_until(lambda: time.monotonic() - began > 6)
    return []


PHASES = {"kineto": traced_from_outside, "profiler": traced_in_the_program, "quiet": quiet}
quiet(None)
lines, steps = [], []


def median_step():
    took = []
    train(BETWEEN, took)
    steps.append(round(statistics.median(took), 3))


median_step()
for number, phase in enumerate(phases):
    lines += PHASES[phase](number)
    median_step()
if rank == 0:
    for each in lines:
        print(json.dumps(each))
    print(json.dumps({"kind": kind, "phases": phases, "step ms p50": steps}))
dist.barrier()
dist.destroy_process_group()
