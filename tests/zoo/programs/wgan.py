"""A GAN with a gradient penalty: five updates of the critic, then one of the generator. Such an iteration is a step."""

import own
import torch
from torch import nn

WIDTH, ROWS = own.size(2048, 32), own.size(2048, 16)


def network(inside, outside):
    return nn.Sequential(
        nn.Linear(inside, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, outside)
    ).to(own.DEVICE)


generator, critic = network(128, WIDTH), network(WIDTH, 1)
of_generator = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
of_critic = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
real = torch.randn(ROWS, WIDTH, device=own.DEVICE)
while True:
    for _ in range(5):
        with torch.no_grad():
            fake = generator(torch.randn(ROWS, 128, device=own.DEVICE))
        mix = torch.rand(ROWS, 1, device=own.DEVICE)
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        of_critic.zero_grad()
        (critic(fake).mean() - critic(real).mean() + 10 * (slope.norm(dim=1) - 1).square().mean()).backward()
        of_critic.step()
    of_generator.zero_grad()
    (-critic(generator(torch.randn(ROWS, 128, device=own.DEVICE))).mean()).backward()
    of_generator.step()
    own.step()
