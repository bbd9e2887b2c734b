"""xpu-top's figures of what GPUs and processes move and compute, compared with the program's own arithmetic.

Two ranks under `xpu-top run --job load`; each part lasts PART seconds. Rank 0 prints a line per figure: xpu-top's,
its own, and their ratio. It also prints the lines of `nvidia-smi dmon --gpm-metrics` or `dcgmi dmon`, if available.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import time

import torch
import torch.distributed as dist

# A reading of a GPU is an average over one to five seconds, which depends on the reading's cost.
PART = 8.0
SIZE = 256 << 20
# SM activity, DRAM bandwidth, PCIe out and in, NVLink in and out: the numbers of NVML, and of DCGM.
GPM = "2,10,20,21,60,61"
DCGM = "1002,1005,1009,1010,1011,1012"

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
one, two = (torch.empty(SIZE, dtype=torch.uint8, device="cuda") for _ in range(2))
pinned = torch.empty(SIZE, dtype=torch.uint8, pin_memory=True)
matrix = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
properties = torch.cuda.get_device_properties(rank)


def peak():
    """The memory bandwidth of the GPU in bytes per second: both edges of its clock, times the width of its bus."""
    query = ["nvidia-smi", f"--id={rank}", "--query-gpu=clocks.max.mem", "--format=csv,noheader,nounits"]
    mhz = float(subprocess.run(query, capture_output=True, text=True, check=True).stdout)
    return 2 * mhz * 1e6 * getattr(properties, "memory_bus_width", 5120) / 8


def loads():
    command = ["xpu-top", "status", "--now", "--json", "--job", "load"]
    said = json.loads(subprocess.run(command, capture_output=True, text=True).stdout or "{}")
    return {found["rank"]: found.get("load") for found in said.get("ranks", [])}


def beside(out):
    """Collects the output of other monitoring programs."""
    for command in (
        ["nvidia-smi", "dmon", "--gpm-metrics", GPM, "-c", "2", "-d", "1"],
        ["dcgmi", "dmon", "-e", DCGM, "-c", "2", "-d", "1000"],
    ):
        if shutil.which(command[0]):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=PART)
                out.append(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
            except subprocess.TimeoutExpired:
                out.append(f"{' '.join(command)}: no answer in {PART} s")


def is_over(began, together):
    """Whether the part has ended. If the ranks work together, both end it in the same round."""
    over = time.monotonic() - began >= PART
    if together:
        flag = torch.tensor([float(over)], device="cuda")
        dist.all_reduce(flag, dist.ReduceOp.MAX)
        over = flag.item() > 0
    return over


def during(work, together):
    """The ranks' loads shortly before the end, how often per second each did the work, and other programs' output."""
    said, others = {}, []
    asks = threading.Timer(PART - 0.7, lambda: said.update(loads()))
    watches = threading.Thread(target=beside, args=(others,))
    dist.barrier()
    if rank == 0:
        asks.start()
        watches.start()
    began, done = time.monotonic(), 0
    while not is_over(began, together):
        work()
        done += 1
    torch.cuda.synchronize()
    passed = time.monotonic() - began
    if rank == 0:
        asks.join()
        watches.join()
    rates = [None, None]
    dist.all_gather_object(rates, done / passed)
    return said, rates, "\n".join(others)


def batch(act, times=8):
    def work():
        for _ in range(times):
            act()
        torch.cuda.synchronize()

    return work


def exchange():
    """Each rank sends to the other and receives from it."""
    requests = [dist.P2POp(dist.isend, one, 1 - rank), dist.P2POp(dist.irecv, two, 1 - rank)]
    for request in dist.batch_isend_irecv(requests):
        request.wait()


def spin():
    until = time.monotonic() + 0.1
    while time.monotonic() < until:
        pass


folder = tempfile.TemporaryDirectory(dir=os.environ.get("LOAD_FOLDER", "/tmp"))
file = open(pathlib.Path(folder.name) / "written", "wb", 0)
block = bytes(32 << 20)


def write():
    file.seek(0)
    file.write(block)
    os.fsync(file.fileno())


small = torch.zeros(1, device="cuda")
PARTS = [
    # name, work, figure, what one round of the work is in it
    ("at rest", lambda: time.sleep(0.1), ("gpu", "sm_pct"), None),
    (
        "to the GPU",
        batch(lambda: one.copy_(pinned, non_blocking=True)),
        ("gpu", "pcie", "received_bytes_per_s"),
        8 * SIZE,
    ),
    (
        "from the GPU",
        batch(lambda: pinned.copy_(one, non_blocking=True)),
        ("gpu", "pcie", "sent_bytes_per_s"),
        8 * SIZE,
    ),
    ("between GPUs", batch(exchange), ("gpu", "nvlink", "sent_bytes_per_s"), 8 * SIZE),
    ("between GPUs", batch(exchange), ("gpu", "nvlink", "received_bytes_per_s"), 8 * SIZE),
    ("in the GPU", batch(lambda: two.copy_(one), 64), ("gpu", "dram_pct"), 100 * 64 * 2 * SIZE / peak()),
    ("GEMMs", batch(lambda: matrix @ matrix), ("gpu", "sm_pct"), None),
    ("one block", batch(lambda: small.add_(1), 2000), ("gpu", "sm_pct"), None),
    ("one core", spin, ("cpu_cores",), 0.1),
    ("to a file", write, ("disk", "sent_bytes_per_s"), len(block)),
]


def main():
    # A rank that has launched nothing yet has no figures.
    batch(lambda: matrix @ matrix)()
    exchange()
    deadline = time.monotonic() + 20
    while rank == 0 and time.monotonic() < deadline and not all((loads().get(at) or {}).get("gpu") for at in (0, 1)):
        time.sleep(0.5)
    dist.barrier()
    if rank == 0:
        print(f"{properties.name}, {properties.multi_processor_count} SMs, {peak() / 1e12:.2f} TB/s")
        print(f"{'part':14} {'figure':32} {'rank':4} {'xpu-top':>16} {'own':>16} ratio")
    last = None
    for name, work, figure, each in PARTS:
        if name != last:
            said, rates, others = during(work, name == "between GPUs")
        if rank == 0:
            for at in (0, 1):
                value = said.get(at)
                for key in figure:
                    value = (value or {}).get(key)
                own = None if each is None else each * rates[at]
                ratio = f"{value / own:.3f}" if value is not None and own else ""
                print(f"{name:14} {'.'.join(figure):32} {at:4} {value!s:>16} {own and round(own, 2)!s:>16} {ratio}")
            if name != last:
                print(others)
        last = name
    dist.barrier()
    dist.destroy_process_group()


main()
