"""Meta-learning: for each of four tasks, three updates of a copy of the weights without an optimizer; then one step
of Adam through them."""

import own
import torch
from torch import nn
from torch.func import functional_call

WIDTH, ROWS = own.size(1024, 16), own.size(512, 8)
model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, 1))
model = model.to(own.DEVICE)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)


def task():
    x = torch.randn(2, ROWS, WIDTH, device=own.DEVICE)
    return x, (x * torch.randn(WIDTH, device=own.DEVICE)).sum(-1, keepdim=True).sin()


while True:
    optimizer.zero_grad()
    for _ in range(4):
        (x, test_x), (y, test_y) = task()
        fast = dict(model.named_parameters())
        for _ in range(3):
            loss = (functional_call(model, fast, x) - y).square().mean()
            gradients = torch.autograd.grad(loss, fast.values(), create_graph=True)
            fast = {name: p - 0.01 * g for (name, p), g in zip(fast.items(), gradients)}
        ((functional_call(model, fast, test_x) - test_y).square().mean() / 4).backward()
    optimizer.step()
    own.step()
