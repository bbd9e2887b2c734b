"""A small diffusion UNet of convolutions and attention, with an average of the weights, a cosine schedule and
clipping. Samples images from the average every 60 steps."""

import math

import own
import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

CHANNELS, SIDE, ROWS, TIMES = own.size(128, 8), own.size(64, 16), own.size(32, 2), 1000
SAMPLES, TURNS = own.size(16, 2), own.size(25, 3)


class Residual(nn.Module):
    def __init__(self, inside, outside):
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, inside), nn.SiLU(), nn.Conv2d(inside, outside, 3, padding=1))
        self.time = nn.Linear(4 * CHANNELS, outside)
        self.second = nn.Sequential(nn.GroupNorm(8, outside), nn.SiLU(), nn.Conv2d(outside, outside, 3, padding=1))
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x, time):
        return self.skip(x) + self.second(self.first(x) + self.time(time)[:, :, None, None])


class Attention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.norm, self.heads = nn.GroupNorm(8, channels), heads
        self.into, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        rows, channels, height, width = x.shape
        parts = self.into(self.norm(x)).reshape(rows, 3, self.heads, channels // self.heads, height * width)
        q, k, v = parts.transpose(-1, -2).unbind(1)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return x + self.out(mixed.transpose(-1, -2).reshape(rows, channels, height, width))


class UNet(nn.Module):
    def __init__(self, widths=(1, 2, 2)):
        super().__init__()
        widths = [CHANNELS * width for width in widths]
        self.time = nn.Sequential(
            nn.Linear(CHANNELS, 4 * CHANNELS), nn.SiLU(), nn.Linear(4 * CHANNELS, 4 * CHANNELS), nn.SiLU()
        )
        self.into = nn.Conv2d(3, widths[0], 3, padding=1)
        self.down, self.up, now, kept = nn.ModuleList(), nn.ModuleList(), widths[0], []
        for level, width in enumerate(widths):
            attends = Attention(width) if level == 2 else nn.Identity()
            last = level == len(widths) - 1
            shrink = nn.Identity() if last else nn.Conv2d(width, width, 3, stride=2, padding=1)
            self.down.append(nn.ModuleList([Residual(now, width), attends, Residual(width, width), shrink]))
            kept.append(width)
            now = width
        self.middle = nn.ModuleList([Residual(now, now), Attention(now), Residual(now, now)])
        for level, width in reversed(list(enumerate(widths))):
            attends = Attention(width) if level == 2 else nn.Identity()
            grow = nn.Identity() if level == 0 else nn.Conv2d(width, width, 3, padding=1)
            self.up.append(nn.ModuleList([Residual(now + kept.pop(), width), attends, Residual(width, width), grow]))
            now = width
        self.out = nn.Sequential(nn.GroupNorm(8, now), nn.SiLU(), nn.Conv2d(now, 3, 3, padding=1))

    def forward(self, x, times):
        bands = torch.exp(-math.log(10000) * torch.arange(CHANNELS // 2, device=x.device) / (CHANNELS // 2))
        angles = times[:, None].float() * bands
        time, kept = self.time(torch.cat([angles.sin(), angles.cos()], 1)), []
        x = self.into(x)
        for first, attends, second, shrink in self.down:
            x = second(attends(first(x, time)), time)
            kept.append(x)
            x = shrink(x)
        first, attends, second = self.middle
        x = second(attends(first(x, time)), time)
        for first, attends, second, grow in self.up:
            x = second(attends(first(torch.cat([x, kept.pop()], 1), time)), time)
            if not isinstance(grow, nn.Identity):
                x = grow(F.interpolate(x, scale_factor=2))
        return self.out(x)


@torch.no_grad()
def sample(network, rows=SAMPLES, turns=TURNS):
    """Samples images by DDIM."""
    x = torch.randn(rows, 3, SIDE, SIDE, device=own.DEVICE)
    times = torch.linspace(TIMES - 1, 0, turns, device=own.DEVICE).long()
    for at, time in enumerate(times):
        with torch.autocast(own.DEVICE.type, dtype=torch.bfloat16):
            noise = network(x, time.expand(rows)).float()
        here = remains[time]
        there = remains[times[at + 1]] if at + 1 < turns else torch.ones_like(here)
        clean = ((x - (1 - here).sqrt() * noise) / here.sqrt()).clamp(-1, 1)
        x = there.sqrt() * clean + (1 - there).sqrt() * noise
    return ((x + 1) * 127.5).to(torch.uint8).cpu()


model = UNet().to(own.DEVICE)
average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9995))
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 100_000)
remains = torch.cumprod(1 - torch.linspace(1e-4, 0.02, TIMES, device=own.DEVICE), 0)
step = 0
while True:
    images = torch.rand(ROWS, 3, SIDE, SIDE).mul(2).sub(1).to(own.DEVICE)
    noise, times = torch.randn_like(images), torch.randint(TIMES, (ROWS,), device=own.DEVICE)
    here = remains[times][:, None, None, None]
    noisy = here.sqrt() * images + (1 - here).sqrt() * noise
    with torch.autocast(own.DEVICE.type, dtype=torch.bfloat16):
        loss = F.mse_loss(model(noisy, times).float(), noise)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    average.update_parameters(model)
    step += 1
    own.step(step)
    if step % 60 == 0:
        average.eval()
        print(step, loss.item(), sample(average).float().mean().item(), flush=True)
