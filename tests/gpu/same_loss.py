"""Prints the loss of every step, bit for bit. Run it with and without the hook, and compare.

torchrun --nproc_per_node 2 same_loss.py ddp|fsdp [STEPS]
"""

import os
import sys

import model as transformer
import torch
import torch.distributed as dist

kind = sys.argv[1]
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100
os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
device = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=torch.device("cuda", device))
torch.use_deterministic_algorithms(True)
torch.manual_seed(17)
model = transformer.build(kind, 1024, 4)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
torch.manual_seed(100 + dist.get_rank())
with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
    for _ in range(steps):
        x = torch.randn(4, 512, 1024, device="cuda", dtype=torch.bfloat16)
        loss = (model(x).float() - x.float().roll(1, dims=1)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        whole = loss.detach().clone()
        dist.all_reduce(whole)
        if dist.get_rank() == 0:
            print(whole.item().hex(), flush=True)
dist.barrier()
dist.destroy_process_group()
