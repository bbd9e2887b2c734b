"""SIGTERM from torchrun: a handler, installed after the first CUDA call, makes the ranks save a checkpoint."""

import os
import signal
import sys

import torch
import torch.distributed as dist

device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(512, 512, device="cuda"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def step():
    loss = model(torch.ones(8, 512, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


step()
before = signal.getsignal(signal.SIGTERM)
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
if dist.get_rank() == 0:
    print(f"before: {before}", flush=True)
dist.barrier()
if dist.get_rank() == 0:
    # Makes the agent end its workers, as a scheduler's SIGTERM does.
    os.kill(os.getppid(), signal.SIGTERM)
while True:
    step()
    stop = torch.tensor(float(bool(asked)), device="cuda")
    dist.all_reduce(stop, op=dist.ReduceOp.MIN)
    if stop.item():
        break
torch.save(model.module.state_dict(), os.path.join(sys.argv[1], f"checkpoint-{dist.get_rank()}"))
dist.destroy_process_group()
