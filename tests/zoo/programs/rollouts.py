"""Reinforcement learning of a language model: it generates without a cache, then makes four updates from the result.
A step is one update."""

import own
import torch
from blocks import Transformer

actor, reference = Transformer(blocks=3).to(own.DEVICE), Transformer(blocks=3).to(own.DEVICE).eval()
optimizer = torch.optim.AdamW(actor.parameters(), lr=1e-5)
while True:
    with torch.no_grad():
        text = actor.batch(own.size(64, 4))
        for _ in range(own.size(40, 3)):
            text = torch.cat([text, actor(text)[:, -1:]], 1)
        kept = reference(text)
    for _ in range(4):
        loss = (actor(text).float() - kept.float()).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(actor.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        own.step()
    loss.item()
