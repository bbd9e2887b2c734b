"""Two optimizers that both step in each iteration, one for sparse gradients."""

import own
import torch
from torch import nn

WORDS, WIDTH, ROWS = own.size(200_000, 100), own.size(1024, 16), own.size(8192, 16)
words = nn.EmbeddingBag(WORDS, WIDTH, sparse=True).to(own.DEVICE)
tower = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
tower = tower.to(own.DEVICE)
of_words = torch.optim.SparseAdam(list(words.parameters()), lr=1e-3)
of_tower = torch.optim.Adagrad(tower.parameters(), lr=1e-3)
while True:
    score = tower(words(torch.randint(WORDS, (ROWS, 8), device=own.DEVICE)))[:, 0]
    clicked = torch.randint(2, (ROWS,), device=own.DEVICE).float()
    loss = nn.functional.binary_cross_entropy_with_logits(score, clicked)
    for optimizer in (of_words, of_tower):
        optimizer.zero_grad()
    loss.backward()
    for optimizer in (of_words, of_tower):
        optimizer.step()
    own.step()
