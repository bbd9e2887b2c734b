"""A loop of one's own with Lightning Fabric: mixed precision, accumulation over four batches, clipped gradients."""

import own
import torch
from blocks import Transformer
from lightning.fabric import Fabric

fabric = Fabric(accelerator="cuda" if own.GPU else "cpu", devices=1, precision="bf16-mixed" if own.GPU else "32-true")
fabric.launch()
plain = Transformer(blocks=4).float()
model, optimizer = fabric.setup(plain, torch.optim.AdamW(plain.parameters(), lr=1e-4))
batch = 0
while True:
    batch += 1
    is_last = batch % 4 == 0
    with fabric.no_backward_sync(model, enabled=not is_last):
        fabric.backward(model(plain.batch().float()).float().square().mean() / 4)
    if is_last:
        fabric.clip_gradients(model, optimizer, max_norm=1.0)
        optimizer.step()
        optimizer.zero_grad()
        own.step()
