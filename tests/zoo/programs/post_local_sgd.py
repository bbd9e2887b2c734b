"""DDP by post-local SGD: after 100 steps gradients are no longer reduced, and an optimizer around the optimizer
averages the weights every four steps."""

import own
import torch
from blocks import Transformer
from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
from torch.distributed.algorithms.model_averaging import averagers
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel

dist = own.join()
plain = Transformer(blocks=4).to(own.DEVICE)
model = DistributedDataParallel(plain, device_ids=[own.DEVICE.index] if own.GPU else None)
alone = dist.new_subgroups(group_size=1)[0]
state = post_localSGD_hook.PostLocalSGDState(process_group=None, subgroup=alone, start_localSGD_iter=100)
model.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
averager = averagers.PeriodicModelAverager(period=4, warmup_steps=100)
optimizer = PostLocalSGDOptimizer(optim=torch.optim.SGD(model.parameters(), lr=1e-3), averager=averager)
while True:
    model(plain.batch()).float().square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    own.step()
