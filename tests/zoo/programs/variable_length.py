"""Sequences with another length in each step."""

import random

import own
import torch
from blocks import Transformer

model = Transformer().to(own.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
lengths = random.Random(3)
while True:
    x = model.batch(lengths.randint(*own.size((64, 1024), (4, 16))))
    model(x).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
