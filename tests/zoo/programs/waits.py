"""DDP that runs ahead of its GPU and waits every eight steps. With `loader`, its data take 100 ms more in each step;
with `marked`, it marks its steps for xpu-top."""

import ctypes
import sys
import time

import own
import torch
from blocks import Transformer
from torch.nn.parallel import DistributedDataParallel

own.join()
plain = Transformer(blocks=2).to(own.DEVICE)
model = DistributedDataParallel(plain)
mark = ctypes.CDLL(None).xpu_top_step if "marked" in sys.argv else None
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
step = 0
while True:
    if "loader" in sys.argv:
        time.sleep(0.1)
    loss = model(plain.batch()).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if mark:
        mark(ctypes.c_int64(step))
    own.step(step)
    if step % 8 == 0:
        loss.item()
