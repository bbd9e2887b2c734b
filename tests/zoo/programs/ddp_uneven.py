"""DDP whose ranks have different numbers of batches: join() waits for the last rank, PowerSGD compresses the
gradients, and each step accumulates over a random two to six micro-batches."""

import random

import own
import torch
from blocks import Transformer
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

dist = own.join()
plain = Transformer(blocks=own.size(4, 2)).to(own.DEVICE).float()
model = DistributedDataParallel(plain, device_ids=[own.DEVICE.index] if own.GPU else None, gradient_as_bucket_view=True)
compression = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=20)
model.register_comm_hook(compression, powerSGD_hook.powerSGD_hook)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
chance = random.Random(own.RANK)


def loss_of(network, micros):
    with torch.autocast(own.DEVICE.type, dtype=torch.bfloat16, enabled=own.GPU):
        return network(plain.batch()).float().square().mean() / micros


epoch = 0
while True:
    with model.join():
        for _ in range(40 + 8 * own.RANK):
            micros = chance.randint(2, 6)
            # Under join(), DDP's own forward would exchange a flag with the other rank for each micro-batch.
            with model.no_sync():
                for _ in range(micros - 1):
                    loss_of(plain, micros).backward()
            loss = loss_of(model, micros)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            own.step()
    epoch += 1
    print("rank", own.RANK, "epoch", epoch, loss.item(), flush=True)
