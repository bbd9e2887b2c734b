"""Local SGD: ranks train alone, and average their weights every eight steps."""

import own
import torch
from blocks import Transformer

dist = own.join()
model = Transformer(blocks=4).to(own.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
count = 0
while True:
    model(model.batch()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    count += 1
    if count % 8 == 0:
        for parameter in model.parameters():
            dist.all_reduce(parameter.data)
            parameter.data /= dist.get_world_size()
    own.step()
