"""A recommender as in DLRM: 26 embedding tables with sparse gradients under SparseAdam, and perceptrons under Adam.
Both optimizers step in each step."""

import own
import torch
from torch import nn

TABLES, KEYS, WIDTH, DENSE, ROWS = 26, own.size(100_000, 100), own.size(64, 8), 13, own.size(16384, 16)


def perceptron(*widths):
    layers = []
    for inside, outside in zip(widths, widths[1:]):
        layers += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class Recommender(nn.Module):
    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(KEYS, WIDTH, mode="sum", sparse=True) for _ in range(TABLES))
        self.bottom = perceptron(DENSE, own.size(512, 16), own.size(256, 16), WIDTH)
        pairs = (TABLES + 1) * TABLES // 2
        self.top = perceptron(WIDTH + pairs, own.size(1024, 16), own.size(1024, 16), own.size(256, 16), 1)
        self.register_buffer("pairs", torch.tril_indices(TABLES + 1, TABLES + 1, offset=-1))

    def forward(self, numbers, keys):
        below = self.bottom(numbers)
        parts = torch.stack([below, *(table(key) for table, key in zip(self.tables, keys))], 1)
        products = torch.bmm(parts, parts.transpose(1, 2))[:, self.pairs[0], self.pairs[1]]
        return self.top(torch.cat([below, products], 1)).squeeze(1)


model = Recommender().to(own.DEVICE)
of_tables = torch.optim.SparseAdam(list(model.tables.parameters()), lr=1e-3)
of_rest = torch.optim.Adam([*model.bottom.parameters(), *model.top.parameters()], lr=1e-3)
loss_of = nn.BCEWithLogitsLoss()
step, running = 0, torch.zeros((), device=own.DEVICE)
while True:
    numbers = torch.rand(ROWS, DENSE, device=own.DEVICE)
    # A few keys are frequent, most are rare. A row has one or three of them.
    keys = (torch.rand(TABLES, ROWS, 3, device=own.DEVICE).pow(4) * KEYS).long()
    clicks = (torch.rand(ROWS, device=own.DEVICE) < 0.1).float()
    loss = loss_of(model(numbers, [key[:, : 1 if at % 2 else 3] for at, key in enumerate(keys)]), clicks)
    of_tables.zero_grad()
    of_rest.zero_grad()
    loss.backward()
    of_tables.step()
    of_rest.step()
    running += loss.detach()
    step += 1
    own.step(step)
    if step % 100 == 0:
        print(step, running.item() / 100, flush=True)
        running.zero_()
