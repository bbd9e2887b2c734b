"""A network that solves Burgers' equation with LBFGS: each step calls its closure several times, and the closure
differentiates twice."""

import math

import own
import torch
from torch import nn

WIDTH, POINTS = own.size(512, 16), own.size(16384, 64)
layers = [nn.Linear(2, WIDTH), nn.Tanh()]
for _ in range(6):
    layers += [nn.Linear(WIDTH, WIDTH), nn.Tanh()]
model = nn.Sequential(*layers, nn.Linear(WIDTH, 1)).to(own.DEVICE)
optimizer = torch.optim.LBFGS(
    model.parameters(), lr=1.0, max_iter=4, history_size=20, line_search_fn="strong_wolfe", tolerance_grad=0,
    tolerance_change=0,
)  # fmt: skip


def derivative(y, x):
    return torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True)[0]


def points():
    inside = torch.rand(POINTS, 2, device=own.DEVICE) * torch.tensor([1.0, 2.0], device=own.DEVICE)
    inside = inside - torch.tensor([0.0, 1.0], device=own.DEVICE)
    start = torch.rand(POINTS // 8, 1, device=own.DEVICE) * 2 - 1
    return inside.requires_grad_(), torch.cat([torch.zeros_like(start), start], 1)


step = 0
while True:
    inside, start = points()

    def closure(inside=inside, start=start):
        optimizer.zero_grad()
        u = model(inside)
        first = derivative(u, inside)
        second = derivative(first[:, 1:], inside)[:, 1:]
        residual = first[:, :1] + u * first[:, 1:] - 0.01 / math.pi * second
        off = model(start) + torch.sin(math.pi * start[:, 1:])
        loss = residual.square().mean() + 10 * off.square().mean()
        loss.backward()
        return loss

    loss = optimizer.step(closure)
    step += 1
    own.step(step)
    if step % 20 == 0:
        print(step, loss.item(), flush=True)
