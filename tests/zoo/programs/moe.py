"""A mixture of experts: all-to-alls send tokens to the rank of their expert and back; the dense part is
data-parallel."""

import own
import torch
from torch import nn

dist = own.join()
world, WIDTH, TOKENS = dist.get_world_size(), own.size(2048, 32), own.size(8192, 64)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(_context, x):
        out = torch.empty_like(x)
        dist.all_to_all_single(out, x.contiguous())
        return out

    @staticmethod
    def backward(_context, gradient):
        out = torch.empty_like(gradient)
        dist.all_to_all_single(out, gradient.contiguous())
        return out


def exchange(x):
    # Some versions of Gloo have no all-to-all.
    return Exchange.apply(x) if own.GPU else x


dense = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)]).to(own.DEVICE)
experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)]).to(own.DEVICE)
optimizers = [torch.optim.AdamW(part.parameters(), lr=1e-4) for part in (dense, experts)]
x = torch.randn(TOKENS, WIDTH, device=own.DEVICE)
while True:
    h = x
    for shared, expert in zip(dense, experts):
        h = h + exchange(torch.relu(expert(exchange(shared(h)))))
    h.square().mean().backward()
    for parameter in dense.parameters():
        dist.all_reduce(parameter.grad)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    own.step()
