"""A neural differential equation with torchdiffeq: the solver calls the network as often as its error needs."""

import own
import torch
from torch import nn
from torchdiffeq import odeint_adjoint

WIDTH, ROWS = own.size(1024, 16), own.size(2048, 16)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))

    def forward(self, _time, x):
        return self.layers(x)


field = Field().to(own.DEVICE)
optimizer = torch.optim.Adam(field.parameters(), lr=1e-4)
times = torch.linspace(0.0, 1.0, 3, device=own.DEVICE)
step = 0
while True:
    start = torch.randn(ROWS, WIDTH, device=own.DEVICE) * (1 + step % 5)
    end = odeint_adjoint(field, start, times, rtol=1e-2, atol=1e-2, method="dopri5")[-1]
    end.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    own.step(step)
