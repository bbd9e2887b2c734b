"""FSDP2 with each layer compiled, mixed precision, gradient clipping and activation checkpoints."""

import own
import torch
from blocks import Transformer
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

own.join()
model = Transformer().float().to(own.DEVICE)
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
layers = model.layers.layers
for number, layer in enumerate(layers):
    layers[number] = checkpoint_wrapper(layer)
    if own.GPU:
        layers[number].compile()
    fully_shard(layers[number], mp_policy=precision)
fully_shard(model, mp_policy=precision)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
count = 0
while True:
    model(model.batch()).float().square().mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    count += 1
    own.step()
