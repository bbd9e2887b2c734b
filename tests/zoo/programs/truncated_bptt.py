"""A language model with an LSTM: truncated backpropagation through time, the state is carried from piece to piece."""

import own
import torch
from torch import nn

WORDS, WIDTH, ROWS, PIECE = own.size(8192, 64), own.size(1024, 32), own.size(64, 4), own.size(70, 5)
words, body, head = nn.Embedding(WORDS, WIDTH), nn.LSTM(WIDTH, WIDTH, 2, batch_first=True), nn.Linear(WIDTH, WORDS)
for part in (words, body, head):
    part.to(own.DEVICE)
parameters = [p for part in (words, body, head) for p in part.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.5)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=5)
while True:
    state, losses = None, []
    text = torch.randint(WORDS, (ROWS, 20 * PIECE + 1), device=own.DEVICE)
    for at in range(0, 20 * PIECE, PIECE):
        state = tuple(part.detach() for part in state) if state else None
        hidden, state = body(words(text[:, at : at + PIECE]), state)
        loss = nn.functional.cross_entropy(head(hidden).flatten(0, 1), text[:, at + 1 : at + PIECE + 1].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 0.25)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
        own.step()
    schedule.step(torch.stack(losses).mean().item())
