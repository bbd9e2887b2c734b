"""Resident memory of a rank after 50 steps, in MiB."""

import os

import model as transformer
import torch
import torch.distributed as dist

device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
step = transformer.trainer(transformer.build("ddp", 2048, 8), 2048, 1024, 4)
for _ in range(50):
    step()
torch.cuda.synchronize()
with open("/proc/self/status") as status:
    resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
if dist.get_rank() == 0:
    print(f"{resident / 1024:.1f} MiB resident", flush=True)
dist.barrier()
dist.destroy_process_group()
