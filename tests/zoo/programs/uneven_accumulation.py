"""Accumulates until a step has enough tokens: two to six microbatches of different lengths."""

import random

import own
import torch
from blocks import Transformer

model = Transformer(blocks=3).to(own.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=own.GPU)
random.seed(7)
while True:
    tokens = 0
    while tokens < own.size(2048, 24):
        length = random.randint(own.size(256, 4), own.size(1024, 12))
        model(model.batch(length)).float().square().mean().backward()
        tokens += length
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    own.step()
