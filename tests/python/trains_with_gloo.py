"""A rank of PyTorch on CPUs: `trains_with_gloo.py ENOUGH [RANK]`. It trains until the file ENOUGH exists; then RANK
raises."""

import atexit
import ctypes
import os
import pathlib
import sys
import time

# mpirun has its own names for ranks, and sets no rendezvous address.
for name, theirs in {"RANK": "OMPI_COMM_WORLD_RANK", "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE"}.items():
    os.environ.setdefault(name, os.environ.get(theirs, ""))
os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
os.environ.setdefault("MASTER_PORT", os.environ["MEET_AT"])

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

enough = pathlib.Path(sys.argv[1])
fails = len(sys.argv) > 2 and sys.argv[2] == os.environ["RANK"]
torch.set_num_threads(1)
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(64, 64))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
step = getattr(ctypes.CDLL(None), "xpu_top_step", lambda _: 0)
over = torch.zeros(1)
while not over.item():
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step(ctypes.c_int64(-1))
    time.sleep(0.01)
    over.fill_(enough.exists())
    dist.all_reduce(over)
dist.barrier()
dist.destroy_process_group()
# PyTorch's threads that still run may abort the process at its end ("terminate called without an active exception").
atexit.register(lambda: os._exit(int(fails)))
if fails:
    raise RuntimeError("a shard is missing")
if len(sys.argv) > 2:
    time.sleep(1)
