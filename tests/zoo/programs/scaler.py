"""Mixed precision with a GradScaler. It skips the steps whose gradients overflow, and those do not count as steps."""

import own
import torch
from torch import nn

WIDTH = own.size(2048, 32)
model = nn.Sequential(*[nn.Linear(WIDTH, WIDTH) for _ in range(6)]).to(own.DEVICE)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler(own.DEVICE.type, init_scale=1024.0)
x = torch.randn(own.size(4096, 16), WIDTH, device=own.DEVICE)
batch = 0
while True:
    batch += 1
    with torch.autocast(own.DEVICE.type, dtype=torch.float16 if own.GPU else torch.bfloat16):
        loss = model(x).float().square().mean()
    if batch % 3 == 0:
        loss = loss * float("inf")
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update(1024.0)
    optimizer.zero_grad()
    own.step(batch - batch // 3)
