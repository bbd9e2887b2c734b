"""Two optimizers in one loop: a generator and a discriminator."""

import own
import torch
from torch import nn

WIDTH = own.size(2048, 32)


def network(inside, outside):
    return nn.Sequential(
        nn.Linear(inside, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(), nn.Linear(WIDTH, outside)
    ).to(own.DEVICE)


generator, judge = network(128, WIDTH), network(WIDTH, 1)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4)
of_judge = torch.optim.Adam(judge.parameters(), lr=1e-4)
loss_of, rows = nn.BCEWithLogitsLoss(), own.size(4096, 16)
real, ones = torch.randn(rows, WIDTH, device=own.DEVICE), torch.ones(rows, 1, device=own.DEVICE)
while True:
    fake = generator(torch.randn(rows, 128, device=own.DEVICE))
    of_judge.zero_grad()
    (loss_of(judge(real), ones) + loss_of(judge(fake.detach()), ones * 0)).backward()
    of_judge.step()
    of_generator.zero_grad()
    loss_of(judge(fake), ones).backward()
    of_generator.step()
    own.step()
