"""One optimizer per parameter, which steps as soon as its gradient is ready."""

import own
import torch
from blocks import Transformer

model = Transformer().to(own.DEVICE)
optimizers = {p: torch.optim.AdamW([p], lr=1e-4) for p in model.parameters()}


def update(parameter):
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for parameter in model.parameters():
    parameter.register_post_accumulate_grad_hook(update)
while True:
    model(model.batch()).float().square().mean().backward()
    own.step()
