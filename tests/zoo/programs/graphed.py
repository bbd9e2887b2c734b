"""A whole step in one CUDA graph: forward, backward and the optimizer; one copy of a batch before each replay."""

import own
import torch
from blocks import Transformer

model = Transformer(blocks=4).to(own.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, capturable=own.GPU)
x = model.batch()


def step():
    optimizer.zero_grad(set_to_none=False)
    model(x).float().square().mean().backward()
    optimizer.step()


if own.GPU:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    fresh = torch.randn_like(x, device="cpu").pin_memory()
count = 3 if own.GPU else 0
while True:
    if own.GPU:
        x.copy_(fresh, non_blocking=True)
        graph.replay()
    else:
        step()
    count += 1
    own.step(count)
    if own.GPU and count % 50 == 0:
        torch.cuda.synchronize()
