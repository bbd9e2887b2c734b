"""DDP whose optimizer state is sharded: ZeroRedundancyOptimizer steps an optimizer inside its own step."""

import own
import torch
from blocks import Transformer
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

dist = own.join()
plain = Transformer(blocks=4).to(own.DEVICE)
model = DistributedDataParallel(plain, device_ids=[own.DEVICE.index] if own.GPU else None)
optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-4)
while True:
    model(plain.batch()).float().square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    own.step()
