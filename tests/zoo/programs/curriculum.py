"""Sequences that double in length every 300 steps, and begin short again after four lengths."""

import own
import torch
from blocks import Transformer

model = Transformer(blocks=4).to(own.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)
step = 0
while True:
    tokens = own.size(128, 2) << (step // 300 % 4)
    model(model.batch(tokens)).float().square().mean().backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    step += 1
    own.step(step)
