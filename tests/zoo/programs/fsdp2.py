"""FSDP2: each layer is sharded."""

import own
import torch
from blocks import Transformer
from torch.distributed.fsdp import fully_shard

own.join()
model = Transformer().to(own.DEVICE)
for layer in model.layers.layers:
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
while True:
    model(model.batch()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
