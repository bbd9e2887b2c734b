"""Fine-tuning in phases: every 60 steps one more layer is trained, with a new optimizer."""

import own
import torch
from torch import nn

WIDTH, ROWS = own.size(4096, 32), own.size(4096, 16)
layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(6)).to(own.DEVICE).requires_grad_(False)
head = nn.Linear(WIDTH, 10).to(own.DEVICE)
step = 0
while True:
    trained = min(step // 60, len(layers))
    for layer in list(layers)[len(layers) - trained :]:
        layer.requires_grad_(True)
    parameters = [p for part in (*layers, head) for p in part.parameters() if p.requires_grad]
    optimizer = torch.optim.RAdam(parameters, lr=1e-4)
    for _ in range(60):
        h = torch.randn(ROWS, WIDTH, device=own.DEVICE)
        for layer in layers:
            h = torch.relu(layer(h))
        nn.functional.cross_entropy(head(h), torch.randint(10, (ROWS,), device=own.DEVICE)).backward()
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        own.step(step)
