"""A functional program: torch.func computes the gradients, and Adam is a compiled function on lists of tensors."""

import own
import torch
from blocks import Transformer
from torch.func import functional_call, grad_and_value

model = Transformer(blocks=own.size(4, 2), rows=8).to(own.DEVICE).float()
parameters = {name: p.detach().clone() for name, p in model.named_parameters()}
first = {name: torch.zeros_like(p) for name, p in parameters.items()}
second = {name: torch.zeros_like(p) for name, p in parameters.items()}


def loss_of(parameters, x):
    with torch.autocast(own.DEVICE.type, dtype=torch.bfloat16, enabled=own.GPU):
        return functional_call(model, parameters, (x,)).float().square().mean()


@torch.compile
def adam(parameters, gradients, first, second, count):
    torch._foreach_lerp_(first, gradients, 0.1)
    torch._foreach_mul_(second, 0.999)
    torch._foreach_addcmul_(second, gradients, gradients, 0.001)
    size = 1e-4 * (1 - 0.999**count).sqrt() / (1 - 0.9**count)
    below = torch._foreach_add(torch._foreach_sqrt(second), 1e-8)
    torch._foreach_sub_(parameters, torch._foreach_mul(torch._foreach_div(first, below), size))


gradients_of = grad_and_value(loss_of)
count = torch.zeros((), device=own.DEVICE)
step = 0
while True:
    gradients, loss = gradients_of(parameters, model.batch().float())
    count += 1
    with torch.no_grad():
        adam(*(list(tree.values()) for tree in (parameters, gradients, first, second)), count)
    step += 1
    own.step(step)
    if step % 25 == 0:
        print(step, loss.item(), flush=True)
