"""A capture of three steps, compared with torch.profiler on three other steps of the same training.

    xpu-top run --job capture -- torchrun --nproc_per_node 2 capture.py XPU_TOP ddp|fsdp FILE

Rank 0 runs `XPU_TOP capture` while all ranks train. Then every rank profiles three steps. Prints lines of JSON: the
step time before, during and after the capture, the content of the file, and the GEMMs, NCCL kernels and their time
per step, from both.
"""

import collections
import ctypes
import json
import os
import statistics
import subprocess
import sys
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

WIDTH, BLOCKS, TOKENS, BATCH = 2048, 8, 1024, 4
STEPS = 3
# The names of cuBLAS's own kernels on this GPU contain one of these.
GEMMS = ("gemm", "nvjet", "cutlass", "xmma")

xpu_top, kind, path = sys.argv[1:4]
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
hook = ctypes.CDLL(None)
step = transformer.trainer(transformer.build(kind, WIDTH, BLOCKS), WIDTH, TOKENS, BATCH)
flag = torch.zeros(1, device="cuda")
capturing = []


def train(steps, took):
    for _ in range(steps):
        begin = time.monotonic()
        step()
        torch.cuda.synchronize()
        hook.xpu_top_step(ctypes.c_int64(-1))
        took.append((time.monotonic() - begin) * 1e3)


def capture():
    command = [xpu_top, "capture", "--job", "capture", "--steps", str(STEPS), "-o", path, "--wait", "60"]
    capturing.append(subprocess.run(command, capture_output=True, text=True))


def all_train_until(over):
    """Trains in blocks of ten steps until rank 0 ends the training."""
    took = []
    while True:
        train(10, took)
        flag.fill_(float(rank == 0 and over()))
        dist.broadcast(flag, 0)
        if flag.item():
            return took


began = time.monotonic()
before = all_train_until(lambda: time.monotonic() - began > 6)
asking = threading.Thread(target=capture)
if rank == 0:
    asking.start()
during = all_train_until(lambda: not asking.is_alive())
after = []
train(100, after)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    for _ in range(STEPS):
        step()
    torch.cuda.synchronize()
counts, times = collections.Counter(), collections.Counter()
for event in profile.events():
    name = event.name.lower()
    what = "nccl" if "nccl" in name else "GEMM" if any(part in name for part in GEMMS) else "other"
    counts[what] += 1
    times[what] += event.device_time
if rank == 0:
    print(json.dumps({"kind": kind, "capture": capturing[0].stdout.strip(), "stderr": capturing[0].stderr.strip()}))
    p50 = {"before": before[10:], "during": during, "after": after}
    print(json.dumps({"step ms p50": {name: round(statistics.median(took), 3) for name, took in p50.items()}}))
    print(
        json.dumps(
            {
                "torch.profiler, a step": {
                    what: {"count": counts[what] / STEPS, "ms": round(times[what] / STEPS / 1e3, 3)} for what in counts
                }
            }
        )
    )
    answer = subprocess.run([xpu_top, "report", path, "--json"], capture_output=True, text=True)
    report = json.loads(answer.stdout)
    print(json.dumps({key: report[key] for key in ("steps", "operations", "dropped", "untimed", "missing", "clock")}))
    for seen in report["ranks"]:
        for each in seen["steps"]:
            names = ("took", "compute", "communication", "exposed")
            shown = {name: round(each["summary"][f"{name}_ns"] / 1e6, 3) for name in names}
            on_gpu = {kind: round(spent / 1e6, 3) for kind, spent in each["on_gpu_ns"].items()}
            line = {"rank": seen["rank"], "step": each["step"], "operations": each["operations"]}
            print(json.dumps(line | {"ms": shown, "on the GPU, ms": on_gpu}))
    size = os.path.getsize(path)
    print(json.dumps({"file": size, "bytes a rank and step": round(size / max(1, len(report["ranks"]) * STEPS))}))
dist.barrier()
dist.destroy_process_group()
