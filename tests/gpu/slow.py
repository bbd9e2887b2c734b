"""A DDP job that runs ahead of its GPU and waits every ten steps. After a while rank 1 gets a fault.

    xpu-top run -- torchrun --nproc_per_node 2 slow.py FAULT HEALTHY SECONDS OUT

FAULT: none, loader (30 ms in its data loader), gil (a thread that holds the GIL), checkpoint (it alone saves every 50
steps), copies (large ones to its GPU), item (it waits for the GPU in each micro-batch), gc (it collects garbage every
step), compute (more arithmetic), batch (its batch is twice as large), cache (it empties the allocator's cache each
step), core (six busy processes share its core), stopped (it is stopped for 60 ms of every 120), log (it writes and
syncs a log of 4 MiB each step), kernels (400 more small kernels a step), python (it parses text for some 10 ms a
step), pinned (it pins new memory for each batch), lock (it waits for another thread's lock), norms (it reads the norm
of each gradient), anomaly (autograd's anomaly detection is on), profiler (PyTorch's profiler is on), neighbour
(another process multiplies on its GPU). The fault begins after HEALTHY seconds. Each rank writes the
time of each step to OUT.RANK; rank 1 writes to OUT.began when the fault began. By default the hosts limit the job;
with WIDTH=4096 the GPUs do.
"""

import contextlib
import gc
import os
import subprocess
import sys
import tempfile
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

fault, healthy, seconds, out = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
WIDTH, BLOCKS, TOKENS, BATCH = int(os.environ.get("WIDTH", "1024")), 4, 512, 4
model = transformer.build("ddp", WIDTH, BLOCKS)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
batch = torch.randn(BATCH, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)
scratch = torch.zeros(1024, device="cuda")
large = torch.empty(64 << 20, dtype=torch.uint8)
rubbish = [[i] for i in range(200_000)]
wrong, over = False, False


def hold_the_gil():
    while not over:
        if wrong and rank == 1:
            sum(range(200_000))
        else:
            time.sleep(0.05)


def parse_records():
    return sum(int(word) for word in " ".join(map(str, range(60_000))).split())


STOPS = "import os, signal, time\nwhile True:\n"
STOPS += "".join(f" os.kill({os.getpid()}, signal.{what}); time.sleep(0.06)\n" for what in ("SIGSTOP", "SIGCONT"))
SPINS = "while True: pass"
MULTIPLIES = f"""
import os, torch
a = torch.randn(8192, 8192, device="cuda:{device}", dtype=torch.bfloat16)
while os.path.exists("/proc/{os.getpid()}"):
    for _ in range(20): torch.mm(a, a)
    torch.cuda.synchronize({device})
"""
helpers = []
lock = threading.Lock()


def hold_the_lock():
    while not over:
        with lock:
            time.sleep(0.02)
        time.sleep(0.001)


def go_wrong():
    if fault == "core":
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        for task in os.listdir("/proc/self/task"):
            # A thread may have ended after it was listed.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(task), {min(os.sched_getaffinity(0))})
    if fault == "lock":
        threading.Thread(target=hold_the_lock, daemon=True).start()
    if fault == "anomaly":
        torch.autograd.set_detect_anomaly(True)
    if fault == "profiler":
        torch.profiler.profile(record_shapes=True, with_stack=True).start()
    known = {"core": (6, SPINS), "stopped": (1, STOPS), "neighbour": (1, MULTIPLIES)}
    count, program = known.get(fault, (0, ""))
    clean = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    # A process that the rank has started counts as a part of it, so another one starts the neighbour.
    by = ["setsid", "--fork"] if fault == "neighbour" else []
    helpers.extend(subprocess.Popen([*by, sys.executable, "-c", program, out], env=clean) for _ in range(count))


if fault == "gil":
    threading.Thread(target=hold_the_gil, daemon=True).start()
log = open(f"{out}.{rank}", "w", buffering=1)
begun, step = time.monotonic(), 0
while True:
    mine = wrong and rank == 1
    if mine and fault == "loader":
        time.sleep(0.03)
    if mine and fault == "python":
        parse_records()
    if mine and fault == "lock":
        lock.acquire()
        lock.release()
    if mine and fault == "pinned":
        batch.copy_(torch.empty(batch.shape, dtype=batch.dtype, pin_memory=True).normal_(), non_blocking=True)
        large.pin_memory()
    if mine and fault == "copies":
        for _ in range(4):
            large.to("cuda")
    loss = model(batch.repeat(2, 1, 1) if mine and fault == "batch" else batch).float().square().mean()
    if mine and fault == "item":
        for _ in range(20):
            loss.item()
            (large[: 1 << 20].to("cuda", non_blocking=True).float().sum() * 0).item()
    if mine and fault == "compute":
        for _ in range(20):
            batch @ batch.transpose(1, 2)
            torch.mm(*[batch.flatten(0, 1)[:1024, :1024]] * 2)
    if mine and fault == "kernels":
        for _ in range(400):
            scratch.add_(1)
    loss.backward()
    if mine and fault == "norms":
        max(parameter.grad.norm().item() for parameter in model.parameters())
    optimizer.step()
    optimizer.zero_grad()
    if mine and fault == "gc":
        gc.collect()
    if mine and fault == "cache":
        torch.cuda.empty_cache()
    if mine and fault == "log":
        with tempfile.TemporaryFile(dir=os.path.dirname(out)) as file:
            file.write(bytes(4 << 20))
            os.fsync(file.fileno())
    if mine and fault == "checkpoint" and step % 50 == 0:
        with tempfile.TemporaryFile() as file:
            torch.save([model.state_dict(), optimizer.state_dict(), [list(one) for one in rubbish]], file)
            time.sleep(1)
    step += 1
    if step % 10 == 0:
        torch.cuda.synchronize()
        # By rank 0's clock, so that the fault and the end come in the same step on all ranks.
        passed = time.monotonic() - begun
        now = torch.tensor([float(passed > healthy), float(passed > healthy + seconds)], device="cuda")
        dist.broadcast(now, 0)
        was, (wrong, over) = wrong, (bool(word) for word in now.tolist())
        if wrong and not was and rank == 1:
            with open(f"{out}.began", "w") as file:
                file.write(str(time.time()))
            go_wrong()
        if over:
            break
    log.write(f"{time.time():.6f} {step}\n")
for helper in helpers:
    helper.kill()
dist.destroy_process_group()
