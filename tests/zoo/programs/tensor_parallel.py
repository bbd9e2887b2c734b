"""Tensor parallelism by DTensor: the two GEMMs of an MLP split by columns and by rows."""

import own
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist = own.join()
mesh = init_device_mesh(own.DEVICE.type, (dist.get_world_size(),))
WIDTH = own.size(4096, 64)
torch.manual_seed(0)
model = nn.Sequential(
    *[nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)) for _ in range(4)]
).to(own.DEVICE)
for block in model:
    parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
x = torch.randn(own.size(2048, 16), WIDTH, device=own.DEVICE)
while True:
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
