"""Compares the hook's figures with torch.cuda.Event's for the same calls in the same run.

    xpu-top run --job agreement -- torchrun --nproc_per_node 2 agreement.py XPU_TOP ddp|fsdp

Trains with a pair of torch events around every call of the widest layer. Then makes explicit all-reduces (fsdp:
all-gathers). Meanwhile rank 0 reads the hook's figures by `XPU_TOP status --json --rank 0`. Prints one line of JSON
per comparison.
"""

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
SIZES_MIB = (1, 16, 64, 256)
REPEATS = 400
BURST = 20
# GPU cycles: about a tenth of a millisecond, and two milliseconds.
SPIN, BURST_SPIN = 200_000, 4_000_000

xpu_top, kind = sys.argv[1:3]
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank, world = dist.get_rank(), dist.get_world_size()
hook = ctypes.CDLL(None)


def status():
    """The hook's figures of rank 0, through the collector and the wire."""
    command = [xpu_top, "status", "--now", "--json", "--rank", "0", "--job", "agreement", "--wait", "4"]
    done = subprocess.run(command, capture_output=True, text=True)
    if not done.stdout.strip():
        return {"error": done.stderr.strip()}
    return json.loads(done.stdout)


class Asking(threading.Thread):
    """Asks for the status while the ranks continue to work."""

    def __init__(self):
        super().__init__()
        self.answer = None

    def run(self):
        self.answer = status()


def go_on_until_answered(work, bursts=20):
    """Runs `work` on every rank until rank 0 has its answer. Rank 0 asks after four seconds of this work alone."""
    asking = Asking()
    start = time.monotonic()
    done = torch.zeros(1, device="cuda")
    while True:
        for _ in range(bursts):
            work()
        torch.cuda.synchronize()
        if rank == 0 and asking.ident is None and time.monotonic() - start > 4:
            asking.start()
        answered = asking.ident is not None and not asking.is_alive()
        done.fill_(1.0 if answered else 0.0)
        dist.broadcast(done, 0)
        if done.item():
            return asking.answer


model = transformer.build(kind, WIDTH, BLOCKS)
step = transformer.trainer(model, WIDTH, TOKENS, BATCH)
pairs = []


def before(module, _arguments):
    pair = (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
    # Keeps the GPU busy until Python has launched the call, so that the pair of events spans the GEMM and not the
    # launch.
    torch.cuda._sleep(SPIN)
    pair[0].record()
    module.pair = pair


def after(module, _arguments, _result):
    module.pair[1].record()
    pairs.append(module.pair)


for _ in range(10):
    step()
torch.cuda.synchronize()
for block in model.module if kind == "ddp" else model:
    block.up.register_forward_pre_hook(before)
    block.up.register_forward_hook(after)
answer = go_on_until_answered(step)
torch.cuda.synchronize()
by_torch = [start.elapsed_time(end) * 1e3 for start, end in pairs]
flops = 2 * (TOKENS * BATCH) * WIDTH * 4 * WIDTH

if rank == 0:
    shown = answer if "error" in answer else {key: answer[key] for key in ("steps", "coverage")}
    print(json.dumps({"status": shown}), flush=True)
    for seen in answer.get("ranks", []):
        shown = (
            "rank",
            "step",
            "step_ms_mean",
            "gemm_tflops",
            "bus_gb_s",
            "lateness_ms_p50",
            "state",
            "mfu",
            "activity",
        )
        line = {key: seen.get(key) for key in shown}
        print(json.dumps(line), flush=True)
        if seen["rank"] != 0:
            continue
        for gemm in seen["gemms"][:8]:
            print(json.dumps(gemm), flush=True)
        widest = {"m": 4 * WIDTH, "n": TOKENS * BATCH, "k": WIDTH, "transposed": "TN"}
        same = [gemm for gemm in seen["gemms"] if widest.items() <= gemm.items()]
        p50 = statistics.median(by_torch)
        print(
            json.dumps(
                {
                    "compared": "GEMM 8192x4096x2048 TN, forward of the widest layer",
                    "torch_us_p50": round(p50, 2),
                    "torch_tflops": round(flops * len(by_torch) / sum(by_torch) / 1e6, 2),
                    "torch_calls": len(by_torch),
                    "hook": same,
                }
            ),
            flush=True,
        )

# The bytes of one call, and its bytes over the bus as nccl-tests counts them.
operation, factor = ("AllReduce", 2 * (world - 1) / world) if kind == "ddp" else ("AllGather", (world - 1) / world)

for mib in SIZES_MIB:
    whole = torch.ones(mib << 19, device="cuda", dtype=torch.bfloat16)
    part = whole.chunk(world)[rank].clone()
    times = []

    def call(whole=whole, part=part):
        if kind == "ddp":
            dist.all_reduce(whole)
        else:
            dist.all_gather_into_tensor(whole, part)

    def timed(times=times, call=call):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        times.append((start, end))

    def queued(work):
        """A burst behind a busy GPU: each call is launched before its turn, so its time includes no launch."""
        torch.cuda._sleep(BURST_SPIN)
        for _ in range(BURST):
            work()

    for _ in range(5):
        queued(timed)
    torch.cuda.synchronize()
    dist.barrier()
    times.clear()
    # As in nccl-tests: the time of one call among many.
    bursts = []
    for _ in range(REPEATS // BURST):
        queued(timed)
        torch.cuda._sleep(BURST_SPIN)
        # The first call waits for the other rank's first.
        call()
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for _ in range(BURST):
            call()
        end.record()
        bursts.append((start, end))
        torch.cuda.synchronize()
    answer = go_on_until_answered(lambda timed=timed: queued(timed), bursts=1)
    torch.cuda.synchronize()
    burst_us = statistics.median(start.elapsed_time(end) * 1e3 / BURST for start, end in bursts)
    # The shortest duration of a call over all ranks is the transfer.
    mine = torch.tensor([start.elapsed_time(end) for start, end in times[:REPEATS]], device="cuda")
    dist.all_reduce(mine, op=dist.ReduceOp.MIN)
    transfer_us = mine.median().item() * 1e3
    if rank == 0:
        seen = next((r for r in answer.get("ranks", []) if r["rank"] == 0), {})
        same = [c for c in seen.get("collectives", []) if c["bytes"] == mib << 20 and c["operation"] == operation]
        bus = (mib << 20) * factor
        print(
            json.dumps(
                {
                    "compared": f"{operation} {mib} MiB",
                    "torch_transfer_us_p50": round(transfer_us, 1),
                    "torch_bus_gb_s": round(bus / transfer_us / 1e3, 1),
                    "burst_us_p50": round(burst_us, 1),
                    "burst_bus_gb_s": round(bus / burst_us / 1e3, 1),
                    "hook": same,
                }
            ),
            flush=True,
        )
dist.barrier()
dist.destroy_process_group()
