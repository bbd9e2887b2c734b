"""Muon, a custom optimizer, for matrices, and AdamW for the rest. The two step one after the other."""

import own
import torch
from blocks import Transformer


class Muon(torch.optim.Optimizer):
    def __init__(self, parameters, lr=1e-3, momentum=0.95):
        super().__init__(parameters, {"lr": lr, "momentum": momentum})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                moved = self.state[parameter].setdefault("moved", torch.zeros_like(parameter))
                moved.mul_(group["momentum"]).add_(parameter.grad)
                x = moved / (moved.norm() + 1e-7)
                for _ in range(5):
                    product = x @ x.T
                    x = 3.4445 * x + (-4.7750 * product + 2.0315 * product @ product) @ x
                parameter.add_(x, alpha=-group["lr"])


model = Transformer(blocks=4).to(own.DEVICE)
matrices = [parameter for parameter in model.parameters() if parameter.ndim == 2]
others = [parameter for parameter in model.parameters() if parameter.ndim != 2]
optimizers = [Muon(matrices), torch.optim.AdamW(others, lr=1e-4)]
while True:
    model(model.batch()).float().square().mean().backward()
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
    own.step()
