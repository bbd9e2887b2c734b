"""DDP whose ranks are started by torch.multiprocessing.spawn, without torchrun."""

import os
import sys
import tempfile

import torch


def train(rank, world, store):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank if torch.cuda.device_count() >= world else 0))
    import own
    from blocks import Transformer
    from torch import distributed as dist

    dist.init_process_group(
        "nccl" if own.GPU and torch.cuda.device_count() >= world else "gloo",
        init_method=f"file://{store}", rank=rank, world_size=world,
    )  # fmt: skip
    model = Transformer(blocks=3).to(own.DEVICE)
    model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    while True:
        loss = model(model.module.batch()).float().square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        own.step()


if __name__ == "__main__":
    world = int(sys.argv[1])
    torch.multiprocessing.spawn(train, (world, tempfile.mktemp()), world)
