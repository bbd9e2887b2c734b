"""torch.compile of model and optimizer under DDP, waiting for the GPU every five steps."""

import sys

import own
import torch
from blocks import Transformer
from torch.nn.parallel import DistributedDataParallel

own.join()
plain = Transformer().to(own.DEVICE)
model = DistributedDataParallel(torch.compile(plain, mode=sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
update = torch.compile(optimizer.step)
x, step = plain.batch(), 0
while True:
    loss = model(x).float().square().mean()
    loss.backward()
    update()
    optimizer.zero_grad()
    step += 1
    own.step(step)
    if step % 5 == 0:
        loss.item()
