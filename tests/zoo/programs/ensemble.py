"""An ensemble of four models on the same batches, each with an optimizer of its own. A batch is a step."""

import own
import torch
from torch import nn

WIDTH, ROWS = own.size(2048, 32), own.size(2048, 16)


def network():
    layers = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.SiLU())]
    return nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(own.DEVICE)


models = [network() for _ in range(4)]
optimizers = [torch.optim.AdamW(model.parameters(), lr=1e-4) for model in models]
while True:
    rows, targets = torch.randn(ROWS, WIDTH, device=own.DEVICE), torch.randn(ROWS, 1, device=own.DEVICE)
    for model, optimizer in zip(models, optimizers):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(rows), targets).backward()
        optimizer.step()
    own.step()
