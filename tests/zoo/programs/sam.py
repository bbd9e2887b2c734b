"""Sharpness-aware minimization: moves the weights up the slope, runs a second forward and backward pass there, then
makes one step of SGD from the original weights."""

import own
import torch
import torchvision
from torch import nn


class SAM(torch.optim.Optimizer):
    def __init__(self, parameters, base, rho=0.05, **rest):
        super().__init__(parameters, {"rho": rho, **rest})
        self.base = base(self.param_groups, **rest)
        self.param_groups = self.base.param_groups

    def all(self):
        return [(group, p) for group in self.param_groups for p in group["params"] if p.grad is not None]

    @torch.no_grad()
    def first_step(self):
        norm = torch.stack([p.grad.norm() for _, p in self.all()]).norm()
        for group, p in self.all():
            self.state[p]["before"] = p.clone()
            p.add_(p.grad * (group["rho"] / (norm + 1e-12)))
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for _, p in self.all():
            p.copy_(self.state[p]["before"])
        self.base.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("first_step and second_step")


def average(model, on):
    """Sets whether the batch's statistics count."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.1 if on else 0.0


model = torchvision.models.resnet34(num_classes=100) if own.GPU else torchvision.models.resnet18(num_classes=10)
model = model.to(own.DEVICE)
optimizer = SAM(model.parameters(), torch.optim.SGD, lr=0.05, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer.base, [10_000, 20_000])
loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
rows, side = own.size(64, 2), own.size(128, 32)
hits = seen = step = 0
while True:
    images = torch.randn(rows, 3, side, side, device=own.DEVICE)
    labels = torch.randint(10, (rows,), device=own.DEVICE)
    average(model, True)
    out = model(images)
    loss_of(out, labels).backward()
    optimizer.first_step()
    average(model, False)
    loss_of(model(images), labels).backward()
    optimizer.second_step()
    schedule.step()
    hits += (out.argmax(1) == labels).sum().item()
    seen += rows
    step += 1
    own.step(step)
    if step % 100 == 0:
        print(step, hits / seen, flush=True)
