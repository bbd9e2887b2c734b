"""A whole step in one CUDA graph on each rank: forward, backward, the all-reduce of gradients, the optimizer."""

import own
import torch
from blocks import Transformer

dist = own.join()
model = Transformer(blocks=4).to(own.DEVICE)
for parameter in model.parameters():
    dist.broadcast(parameter.data, 0)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=own.GPU)
x = model.batch()


def step():
    optimizer.zero_grad(set_to_none=False)
    model(x).float().square().mean().backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad)
        parameter.grad /= dist.get_world_size()
    optimizer.step()


count = 0
if own.GPU:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    count = 3
while True:
    if own.GPU:
        graph.replay()
    else:
        step()
    count += 1
    own.step(count)
    if own.GPU and count % 20 == 0:
        torch.cuda.synchronize()
