"""torch.compile of model and optimizer under DDP. Waits for the GPU every five steps."""

import os
import sys

import own

# Timing Triton's candidates too would take longer than the program is watched.
os.environ.setdefault("TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS", "ATEN")
import torch  # noqa: E402
from blocks import Transformer  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402

own.join()
plain = Transformer().to(own.DEVICE)
model = DistributedDataParallel(torch.compile(plain, mode=sys.argv[1]))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
update = torch.compile(optimizer.step)
x, step = plain.batch(), 0
while True:
    loss = model(x).float().square().mean()
    loss.backward()
    update()
    optimizer.zero_grad()
    step += 1
    own.step(step)
    if step % 5 == 0:
        loss.item()
