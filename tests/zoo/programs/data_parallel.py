"""torch.nn.DataParallel: one process, a thread for each GPU, NCCL between them."""

import own
import torch
from blocks import Transformer
from torch import nn

model = Transformer(blocks=4).to(own.DEVICE)
model.rows = 8
parallel = nn.DataParallel(model) if own.GPU else model
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
while True:
    loss = parallel(model.batch()).float().square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    own.step()
