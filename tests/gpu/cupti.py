"""Switches CUPTI on and off repeatedly in a job that trains, to test whether the job survives.

    cupti.py MODE SECONDS FOLDER [XPU_TOP JOB]

`profiler`: torch.profiler alone, while a thread queries events as the hook's thread does. `client:FLAGS`: `cupti.c`
on its own thread uses CUPTI as the hook does, without the hook; its flags say what is switched and how. `captures`,
`captures+profiler`: `xpu-top capture --kernels`, and both in turn; start these under `xpu-top run`. Prints a line of
JSON when a round begins, so the last line of a job that died shows where, and `over` with the number of rounds.
"""

import ctypes
import json
import os
import random
import subprocess
import sys
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

(mode, _, flags), seconds, folder = sys.argv[1].partition(":"), float(sys.argv[2]), sys.argv[3]
device = int(os.environ.get("LOCAL_RANK", "0"))
rank = int(os.environ.get("RANK", "0"))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
step = transformer.trainer(transformer.build("ddp", 256, 2), 256, 128, 2)
hook = ctypes.CDLL(None)
random.seed(rank)
# All ranks choose the same numbers of steps.
alike = random.Random(7)
ours = ctypes.CDLL(os.path.join(folder, "libcupti-client.so")) if mode == "client" else None
ctypes.CDLL(os.path.join(folder, "libfault.so")).watch_faults()

completed = 0


def train(steps):
    global completed
    for _ in range(steps):
        step()
        torch.cuda.synchronize()
        completed += 1
        if "captures" in mode:
            hook.xpu_top_step(ctypes.c_int64(completed))


def say(what):
    print(json.dumps({"t": round(time.monotonic() - began, 3), "mode": sys.argv[1], "rank": rank, **what}), flush=True)


flag = torch.zeros(1, device="cuda")


def train_until(over):
    """All ranks stop after the same step."""
    while True:
        train(5)
        flag.fill_(float(rank == 0 and over()))
        dist.broadcast(flag, 0)
        if flag.item():
            return


def ask_for_events():
    event = torch.cuda.Event()
    while not ended:
        event.record()
        for _ in range(10):
            event.query()
            time.sleep(0.001)


def profile():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA, torch.profiler.ProfilerActivity.CPU]):
        train(alike.choice([1, 3, 10]))
    train(alike.choice([0, 1, 20]))


switches = 0


def switch():
    """Switches CUPTI on and off on one thread."""
    global switches
    while not ended:
        ours.client_begin()
        time.sleep(random.uniform(0, 0.03))
        ours.client_end()
        switches += 1
        time.sleep(random.uniform(0, 0.02))


def client():
    say({"switches": switches})
    train(100)


def captured():
    path = os.path.join(folder, f"cupti-{sys.argv[5]}.bin")
    if rank != 0:
        return train_until(lambda: False)
    if os.path.exists(path):
        os.remove(path)
    command = [sys.argv[4], "capture", "--job", sys.argv[5], "--steps", "3", "--kernels", "--wait", "30", "-o", path]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    train_until(lambda: process.poll() is not None)
    if process.returncode != 0:
        say({"refused": process.stdout.read().strip()[:200]})


began, ended = time.monotonic(), False
until = began + seconds
train(20)
if mode == "profiler":
    threading.Thread(target=ask_for_events, daemon=True).start()
if "captures" in mode:
    # The collector must know the job first.
    warm = time.monotonic() + 3
    train_until(lambda: time.monotonic() > warm)
if ours:
    ours.client_flags(flags.encode())
    threading.Thread(target=switch, daemon=True).start()
rounds = 0
while True:
    flag.fill_(float(rank == 0 and time.monotonic() > until))
    dist.broadcast(flag, 0)
    if flag.item():
        break
    rounds += 1
    for part in mode.split("+"):
        say({"round": rounds, "part": part})
        {"profiler": profile, "client": client, "captures": captured}[part]()
ended = True
say({"over": rounds})
dist.barrier()
dist.destroy_process_group()
