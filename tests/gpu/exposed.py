"""Exposed communication in the live status, compared with a capture and torch.profiler in the same training.

    xpu-top run --job exposed -- torchrun --nproc_per_node 2 exposed.py XPU_TOP ddp|fsdp FILE [SECONDS]

All ranks train for SECONDS. Then rank 0 asks for the status, then captures five steps with all kernels, and then each
rank profiles ten steps. Each rank prints one line of JSON with the share of a step, in percent, in which only NCCL
ran: from the status (`exposed_pct`), from the capture (`exposed_ns`), and from torch.profiler's kernels."""

import ctypes
import json
import os
import subprocess
import sys
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

WIDTH, BLOCKS, TOKENS, BATCH = (int(size) for size in os.environ.get("SIZES", "2048,8,1024,4").split(","))
CAPTURED, PROFILED = 5, 10
JOB = os.environ.get("XPU_TOP_JOB", "exposed")

xpu_top, kind, path = sys.argv[1:4]
seconds = float(sys.argv[4]) if len(sys.argv) > 4 else 40.0
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
hook = ctypes.CDLL(None)
hook.xpu_top_counter.restype = ctypes.c_uint64
step = transformer.trainer(transformer.build(kind, WIDTH, BLOCKS), WIDTH, TOKENS, BATCH)
flag = torch.zeros(1, device="cuda")
steps = 0


def train(number):
    global steps
    for _ in range(number):
        step()
        steps += 1
        hook.xpu_top_step(ctypes.c_int64(-1))


def train_until(over):
    """Trains in blocks of ten steps until rank 0 ends the training."""
    while True:
        train(10)
        flag.fill_(float(rank == 0 and over()))
        dist.broadcast(flag, 0)
        if flag.item():
            return


def asked(*arguments):
    """A command's output as JSON, or as text if it is not JSON."""
    done = subprocess.run([xpu_top, *arguments], capture_output=True, text=True)
    try:
        return json.loads(done.stdout), ""
    except ValueError:
        return {}, f"{' '.join(arguments)} ended with {done.returncode}: {(done.stderr or done.stdout).strip()[-300:]}"


def beside(ask):
    """Runs `ask` on rank 0 while all ranks train."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(ask()))
    if rank == 0:
        thread.start()
    train_until(lambda: not thread.is_alive())
    return answers[0] if answers else None


def live():
    status, wrong = asked("status", "--now", "--job", JOB, "--json")
    return {of["rank"]: of for of in status.get("ranks", [])}, wrong


def captured():
    if os.path.exists(path):
        os.remove(path)
    order = ["capture", "--job", JOB, "--steps", str(CAPTURED), "--kernels", "-o", path, "--wait", "60"]
    done = subprocess.run([xpu_top, *order], capture_output=True, text=True)
    report, wrong = asked("report", path, "--json")
    return {of["rank"]: of for of in report.get("ranks", [])}, wrong or done.stderr.strip()[-300:]


def union(spans):
    """Merges intervals: the starts and ends of the covered time, in order."""
    whole = []
    for begin, end in sorted(spans):
        if whole and begin <= whole[-1][1]:
            whole[-1][1] = max(whole[-1][1], end)
        else:
            whole.append([begin, end])
    return whole


def length(spans):
    return sum(end - begin for begin, end in union(spans))


def profiled():
    """The share of time, in percent, between the first kernel and the last in which only NCCL's kernels ran."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        train(PROFILED)
        torch.cuda.synchronize()
    trace = f"{path}.{rank}.json"
    profile.export_chrome_trace(trace)
    with open(trace) as file:
        events = [event for event in json.load(file)["traceEvents"] if event.get("cat") == "kernel"]
    os.remove(trace)
    spans = {"nccl": [], "compute": []}
    for event in events:
        what = "nccl" if "nccl" in event["name"].lower() else "compute"
        spans[what].append((event["ts"], event["ts"] + event["dur"]))
    everything = spans["nccl"] + spans["compute"]
    if not everything:
        return None
    took = max(end for _, end in everything) - min(begin for begin, _ in everything)
    return round((length(everything) - length(spans["compute"])) / took * 100, 2)


def percent(summary):
    return round(summary["exposed_ns"] / summary["took_ns"] * 100, 2) if summary and summary["took_ns"] else None


began = time.monotonic()
train_until(lambda: time.monotonic() - began > seconds)
torch.cuda.synchronize()
before, begin = steps, time.monotonic()
train_until(lambda: time.monotonic() - begin > 3)
torch.cuda.synchronize()
step_ms = (time.monotonic() - begin) / (steps - before) * 1e3
counted = {name: hook.xpu_top_counter(name.encode()) for name in ("waits", "untimed", "panics")}
now = beside(live)
capture = beside(captured)
dist.barrier()
try:
    by_profiler = profiled()
except Exception as error:  # noqa: BLE001 - the other two figures are worth having without it
    by_profiler = f"torch.profiler: {error}"
gathered = [None] * dist.get_world_size()
dist.all_gather_object(gathered, {"counted": counted, "profiler": by_profiler, "step ms": round(step_ms, 2)})
if rank == 0:
    said, wrong_now = now
    report, wrong_then = capture
    for number, own in enumerate(gathered):
        status, seen = said.get(number, {}), report.get(number, {})
        each = [percent(one.get("summary")) for one in seen.get("steps", [])]
        line = {
            "kind": kind,
            "rank": number,
            "exposed %": {
                "live": status.get("exposed_pct"),
                "capture": percent(seen.get("summary")),
                "capture, each step": each,
                "torch.profiler": own["profiler"],
            },
            "seen": seen.get("seen"),
            "step ms": own["step ms"],
            "counted": own["counted"],
            "overhead %": status.get("overhead_pct"),
            "wrong": [wrong for wrong in (wrong_now, wrong_then) if wrong],
        }
        print(json.dumps(line), flush=True)
dist.barrier()
dist.destroy_process_group()
