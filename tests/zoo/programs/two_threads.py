"""Two models that train on two threads of one process, each with its own optimizer. The main thread's model is fast
and counts its steps; the other is slow."""

import threading

import own
import torch
from blocks import Transformer
from torch import nn

WIDTH = own.size(2048, 32)


def learn_slowly():
    model = Transformer(rows=own.size(16, 4)).to(own.DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    stream = torch.cuda.Stream() if own.GPU else None
    with torch.cuda.stream(stream):
        while True:
            loss = model(model.batch()).float().square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            slow.append(loss.item())


slow = []
threading.Thread(target=learn_slowly, daemon=True).start()
model = nn.Sequential(*[nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU()) for _ in range(5)]).to(own.DEVICE)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
step = 0
while True:
    x = torch.randn(own.size(4096, 16), WIDTH, device=own.DEVICE)
    loss = (model(x) - x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    step += 1
    own.step(step)
    if step % 10 == 0:
        print(step, loss.item(), len(slow), flush=True)
