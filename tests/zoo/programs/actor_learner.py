"""An actor and a learner: rank 1 generates samples with the newest weights, rank 0 trains on them four times and
sends the weights. Each of the learner's updates is a step; the actor, which has no optimizer, counts the same."""

import own
import torch
from torch import nn

dist = own.join()
WIDTH, ROWS = own.size(2048, 32), own.size(1024, 16)
layers = [layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
policy = nn.Sequential(*layers, nn.Linear(WIDTH, WIDTH)).to(own.DEVICE)
samples = torch.empty(ROWS, WIDTH, device=own.DEVICE)
step = 0
if own.RANK == 0:
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-5)
while True:
    if own.RANK == 1:
        with torch.no_grad():
            samples = torch.randn(ROWS, WIDTH, device=own.DEVICE)
            for _ in range(8):
                samples = policy(samples)
    dist.broadcast(samples, 1)
    for _ in range(4):
        if own.RANK == 0:
            policy(samples).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        own.step(step)
    for parameter in policy.parameters():
        dist.broadcast(parameter.data, 0)
