"""Gradient accumulation over four micro-batches. Each is reduced (`reduce`), or only the last one (`no_sync`). An
evaluation every 20 steps, and a line of log every 10."""

import contextlib
import sys

import own
import torch
from blocks import Transformer
from torch.nn.parallel import DistributedDataParallel

dist = own.join()
plain = Transformer().to(own.DEVICE)
model = DistributedDataParallel(plain)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
step = 0
while True:
    for micro in range(4):
        x = plain.batch()
        with model.no_sync() if sys.argv[1] == "no_sync" and micro < 3 else contextlib.nullcontext():
            loss = model(x).float().square().mean() / 4
            loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    own.step(step)
    if step % 10 == 0 and own.RANK == 0:
        print(step, loss.item(), flush=True)
    if step % 20 == 0:
        model.eval()
        with torch.no_grad():
            for _ in range(3):
                plain(plain.batch()).float().square().mean().item()
        model.train()
