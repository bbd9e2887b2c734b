"""torch.distributed.pipelining: 1F1B with one stage per rank, or interleaved with two."""

import sys

import own
import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B

dist = own.join()
WIDTH, MICRO = own.size(2048, 32), 8
world, each = dist.get_world_size(), 2 if sys.argv[1] == "interleaved" else 1
stages, parts = [], []
for turn in range(each):
    part = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU()) for _ in range(4)]).to(own.DEVICE)
    parts.append(part)
    stages.append(PipelineStage(part, turn * world + own.RANK, world * each, own.DEVICE))


def loss_of(output, target):
    return (output - target).square().mean()


if each == 1:
    schedule = Schedule1F1B(stages[0], MICRO, loss_fn=loss_of)
else:
    schedule = ScheduleInterleaved1F1B(stages, MICRO, loss_fn=loss_of)
optimizer = torch.optim.AdamW([p for part in parts for p in part.parameters()], lr=1e-4)
x = torch.randn(own.size(8192, 64), WIDTH, device=own.DEVICE)
while True:
    given = [x] if own.RANK == 0 else []
    target = {"target": x} if own.RANK == world - 1 else {}
    schedule.step(*given, **target)
    optimizer.step()
    optimizer.zero_grad()
    own.step()
