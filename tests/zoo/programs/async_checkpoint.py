"""DDP that saves every 25 steps in the background, with torch.distributed.checkpoint's async_save."""

import os
import shutil
import tempfile

import own
import torch
import torch.distributed.checkpoint as checkpoint
from blocks import Transformer
from torch.nn.parallel import DistributedDataParallel

dist = own.join()
everyone = dist.new_group(backend="gloo")
plain = Transformer(blocks=2).to(own.DEVICE)
model = DistributedDataParallel(plain, device_ids=[own.DEVICE.index] if own.GPU else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
place = os.environ.get("ZOO_LOG") or tempfile.mkdtemp()
step, saving = 0, None
while True:
    model(plain.batch()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    own.step(step)
    if step % 25 == 0:
        if saving:
            saving.result()
            if own.RANK == 0:
                shutil.rmtree(f"{place}.saved-{step - 25}", ignore_errors=True)
        state = {"model": plain.state_dict(), "step": step}
        saving = checkpoint.async_save(state, checkpoint_id=f"{place}.saved-{step}", process_group=everyone)
