"""Compares the hook's counts with those of an independent counter in the same process, and its FLOPs with the model's
own.

    cc -O2 -shared -fPIC -o libcount.so count.c
    LD_PRELOAD=libcount.so xpu-top run --job counts -- torchrun --nproc_per_node 2 counts.py XPU_TOP JOB [STEPS]

JOB is ddp, fsdp or graphed (a whole step in one CUDA graph).

The model is a transformer whose attention is written as GEMMs, so all arithmetic except the element-wise is in GEMMs.
Rank 0 prints one line of JSON.
"""

import ctypes
import json
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

WIDTH, BLOCKS, TOKENS, BATCH, HEADS = 1024, 4, 512, 4, 16

xpu_top, kind = sys.argv[1:3]
steps = int(sys.argv[3]) if len(sys.argv) > 3 else 100
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
rank, world = dist.get_rank(), dist.get_world_size()
process = ctypes.CDLL(None)
process.xpu_top_counter.restype = process.count_of.restype = ctypes.c_uint64

GEMMS = (
    "cublasGemmEx cublasGemmStridedBatchedEx cublasSgemm_v2 cublasDgemm_v2 cublasSgemmStridedBatched "
    "cublasDgemmStridedBatched cublasSgemmEx cublasLtMatmul"
).split()
COLLECTIVES = {
    "AllReduce": ["ncclAllReduce"],
    "AllGather": ["ncclAllGather"],
    "ReduceScatter": ["ncclReduceScatter"],
    "Broadcast": ["ncclBroadcast", "ncclBcast"],
    "Send": ["ncclSend"],
    "Recv": ["ncclRecv"],
}
LAUNCHES = ["__cudaLaunchKernel", "cudaLaunchKernel", "cudaLaunchKernelExC"]
WAITS = {
    "stream_synchronize": ["cudaStreamSynchronize"],
    "device_synchronize": ["cudaDeviceSynchronize"],
    "event_synchronize": ["cudaEventSynchronize"],
}


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.norm_feedforward = nn.LayerNorm(WIDTH)
        self.up = nn.Linear(WIDTH, 4 * WIDTH)
        self.down = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        qkv = self.qkv(self.norm_attention(x)).view(BATCH, TOKENS, 3, HEADS, WIDTH // HEADS)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        weights = functional.softmax(query @ key.transpose(-2, -1) / 8, dim=-1)
        x = x + self.out((weights @ value).transpose(1, 2).reshape(BATCH, TOKENS, WIDTH))
        return x + self.down(functional.gelu(self.up(self.norm_feedforward(x))))


def build():
    model = nn.Sequential(*[Block() for _ in range(BLOCKS)]).cuda().to(torch.bfloat16)
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if kind == "fsdp":
        from torch.distributed.fsdp import fully_shard

        for block in model:
            fully_shard(block)
        fully_shard(model)
    return model


def analytic_flops():
    """The FLOPs of a forward pass and a backward pass, which costs twice as much: GEMMs with the weights, and those
    of attention."""
    weights = BLOCKS * (3 + 1 + 4 + 4) * WIDTH * WIDTH
    linear = 2 * weights * TOKENS * BATCH
    attention = BLOCKS * 2 * (2 * BATCH * TOKENS * TOKENS * WIDTH)
    return 3 * (linear + attention)


def counted():
    return {name: process.count_of(name.encode()) for names in TABLE.values() for name in names}


MEMORY = {"copies": ["cudaMemcpyAsync"], "allocations": ["cudaMalloc"]}
TABLE = {"gemms": GEMMS, "kernels": LAUNCHES, "graphs": ["cudaGraphLaunch"], **COLLECTIVES, **WAITS, **MEMORY}
# Operations that a graph launch repeats.
REPLAYED = ["gemms", "kernels", "copies", *COLLECTIVES]


def seen():
    """The hook's figures of this rank, through the collector and the wire, once all work is done."""
    torch.cuda.synchronize()
    time.sleep(2.5)
    command = [xpu_top, "status", "--now", "--json", "--rank", str(rank), "--job", "counts", "--wait", "4"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    mine = next(line for line in answer["ranks"] if line["rank"] == rank)
    totals = {name: process.xpu_top_counter(name.encode()) for name in ("gemms", "kernels", "graphs")}
    for collective in mine["collectives"]:
        totals[collective["operation"]] = totals.get(collective["operation"], 0) + collective["count"]
    activity = mine["activity"]
    for blocked in activity["blocked"]:
        totals[blocked["call"]] = blocked["count"]
    totals["copies"] = sum(copies["count"] for copies in activity["memory"]["copies"])
    totals["allocations"] = activity["memory"]["allocations"]
    totals["activity"] = activity
    totals["flops"] = sum(2 * g["m"] * g["n"] * g["k"] * g["batch"] * g["count"] for g in mine["gemms"])
    totals["communicators"] = mine.get("communicators")
    totals["coverage"] = answer["coverage"]
    return totals


model = build()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True, capturable=True)
data = torch.randn(BATCH, TOKENS, WIDTH, device="cuda", dtype=torch.bfloat16)


def train():
    model(data).float().pow(2).mean().backward()
    if kind == "graphed":
        for parameter in model.parameters():
            dist.all_reduce(parameter.grad)
    optimizer.step()
    optimizer.zero_grad(set_to_none=kind != "graphed")


step = train
captured = dict.fromkeys((name for names in TABLE.values() for name in names), 0)
if kind == "graphed":
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(5):
            train()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        # torch itself launches work around a capture.
        outside = counted()
        train()
        captured = {name: count - outside[name] for name, count in counted().items()}
    step = graph.replay
for _ in range(10):
    step()
hook_before, before = seen(), counted()
for _ in range(steps):
    step()
torch.cuda.synchronize()
after = counted()
hook_after = seen()
if rank == 0:
    lines = {}
    for what, names in TABLE.items():
        by_count = sum(after[name] - before[name] for name in names)
        if what in REPLAYED:
            by_count += sum(captured[name] for name in names) * steps
        by_hook = hook_after.get(what, 0) - hook_before.get(what, 0)
        lines[what] = [by_hook, by_count]
    flops = (hook_after["flops"] - hook_before["flops"]) / steps
    shown = {
        "job": kind,
        "steps": steps,
        "hook_and_counter": lines,
        "flops_per_step": flops,
        "analytic_flops_per_step": analytic_flops(),
        "flops_ratio": round(flops / analytic_flops(), 5),
        "communicators": hook_after["communicators"],
        "activity": hook_after["activity"],
        "coverage": hook_after["coverage"],
    }
    print(json.dumps(shown), flush=True)
if kind == "graphed":
    # NCCL destroys a communicator only after the graphs with its operations.
    graph.reset()
dist.barrier()
dist.destroy_process_group()
