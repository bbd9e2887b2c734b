"""DDP of eight equal MLP blocks: only the optimizer distinguishes the steps from the blocks."""

import own
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist = own.join()
WIDTH = own.size(2048, 64)
model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(8)]).to(own.DEVICE)
model = DistributedDataParallel(model, bucket_cap_mb=own.size(16, 0.01))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
batch = torch.randn(own.size(4096, 16), WIDTH, device=own.DEVICE)
while True:
    model(batch).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
