"""torch.compile of the whole step: forward and backward pass in one function, the optimizer in another."""

import own
import torch
from blocks import Transformer

model = Transformer(blocks=3).to(own.DEVICE)
optimizer = torch.optim.AdamW(
    model.parameters(), lr=torch.tensor(1e-4, device=own.DEVICE), **({"capturable": True} if own.GPU else {})
)
loss_of = torch.compile(lambda x: model(x).float().square().mean(), disable=own.SMALL)


@torch.compile(fullgraph=False, disable=own.SMALL)
def update():
    optimizer.step()


text = model.batch()
while True:
    loss_of(text).backward()
    update()
    optimizer.zero_grad()
    own.step()
