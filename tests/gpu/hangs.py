"""A DDP job with a log, in which rank 1 causes a hang after some seconds, in one of the ways in which jobs hang.

    xpu-top run -- torchrun --nproc_per_node 2 hangs.py FAULT SECONDS OUT

FAULT: none, extra (one small all-reduce too many), async (an asynchronous all-reduce left out, for which rank 0 waits
in work.wait() with a time limit), size (other bytes), dtype (as many elements of a wider type), order (two process
groups in the other order), kernel (an endless one before the gradients' all-reduce), swallowed (an exception skips a
step), lock (taken twice), loader (its queue stays empty), send (without a receive), left (the rank exits), long
(healthy: compiles for one shape after the other, then rank 0 evaluates for 25 s and saves for 60 s while rank 1
waits). Rank 1 writes to OUT.began when the fault begins; both ranks write their process ids to OUT.pids. A smaller
WIDTH makes more collectives per second.
"""

import datetime
import os
import queue
import sys
import threading
import time

import model as transformer
import torch
import torch.distributed as dist

fault, seconds, out = sys.argv[1], float(sys.argv[2]), sys.argv[3]
WIDTH = int(os.environ.get("WIDTH", "1024"))
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank = dist.get_rank()
first, second = dist.new_group(), dist.new_group()
model = transformer.build("ddp", WIDTH, 2)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
batch = torch.randn(4, 256, WIDTH, device="cuda", dtype=torch.bfloat16)
lock, batches = threading.Lock(), queue.Queue()
with open(f"{out}.pids", "a") as file:
    file.write(f"{os.getpid()}\n")


def evaluate_and_save():
    """As in many programs: rank 0 alone does this, and the others wait in a collective."""
    if rank == 0:
        until = time.monotonic() + 25
        with torch.no_grad():
            while time.monotonic() < until:
                model.module(batch).float().square().mean().item()
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with open(f"{out}.checkpoint", "wb") as file:
                torch.save([model.state_dict(), optimizer.state_dict()], file)
                os.fsync(file.fileno())
    dist.barrier()


def begin_logging():
    return dist.all_reduce(torch.zeros(77, device="cuda"), async_op=True)


def take_twice():
    with lock, lock:
        pass


def next_batch():
    while True:
        try:
            return batches.get(timeout=5)
        except queue.Empty:
            pass


def train_step(wrong):
    loss = model(batch).float().square().mean()
    if wrong and fault == "kernel":
        torch.cuda._sleep(1 << 62)
    if wrong and fault == "swallowed":
        raise ValueError("a bad batch")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


def log_metrics(loss, wrong):
    figures = torch.zeros(64 if wrong and fault == "size" else 124, device="cuda")
    if wrong and fault == "dtype":
        figures = figures.double()
    dist.all_reduce(figures)
    if wrong and fault == "extra":
        dist.all_reduce(torch.zeros(123, device="cuda"))
    if wrong and fault == "lock":
        take_twice()
    if wrong and fault == "loader":
        next_batch()
    if wrong and fault == "left":
        os._exit(0)
    if wrong and fault == "send":
        dist.send(figures, 0)


def validate(wrong):
    value = torch.ones(1000, device="cuda")
    for group in (second, first) if wrong and fault == "order" else (first, second):
        dist.all_reduce(value, group=group)
        torch.cuda.synchronize()


if fault == "long":
    # Inductor compiles for each shape again, and the ranks finish at different times.
    with open(f"{out}.began", "w") as file:
        file.write(str(time.time()))
    compiled = torch.compile(model, dynamic=False)
    for tokens in (192, 320, 384, 448):
        compiled(
            torch.randn(4, tokens + 32 * rank, WIDTH, device="cuda", dtype=torch.bfloat16)
        ).float().mean().backward()
        optimizer.zero_grad()
begun, step = time.monotonic(), 0
while True:
    # By rank 0's clock, so that all ranks know the step.
    due = torch.tensor([float(time.monotonic() - begun > seconds)], device="cuda")
    dist.broadcast(due, 0)
    if fault == "long" and bool(due.item()):
        evaluate_and_save()
        begun = float("inf")
    wrong = bool(due.item()) and rank == 1 and fault not in ("none", "long")
    if wrong:
        with open(f"{out}.began", "w") as file:
            file.write(str(time.time()))
    if fault == "async" and not wrong:
        # With a time limit, PyTorch asks again and again whether the work is done.
        begin_logging().wait(datetime.timedelta(minutes=10))
    try:
        loss = train_step(wrong)
    except ValueError:
        continue
    log_metrics(loss, wrong)
    validate(wrong)
    step += 1
    if fault == "none" and step % 50 == 0 and rank == 0:
        open(f"{out}.began", "w").write(str(time.time()))
