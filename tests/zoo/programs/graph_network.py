"""A graph convolutional network of torch-geometric."""

import own
import torch
from torch_geometric.nn import GCNConv

NODES, EDGES, WIDTH = own.size(100_000, 100), own.size(1_000_000, 500), own.size(256, 16)
x = torch.randn(NODES, WIDTH, device=own.DEVICE)
edges = torch.randint(NODES, (2, EDGES), device=own.DEVICE)
first, second = GCNConv(WIDTH, WIDTH).to(own.DEVICE), GCNConv(WIDTH, 10).to(own.DEVICE)
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=0.01)
labels = torch.randint(10, (NODES,), device=own.DEVICE)
while True:
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(second(first(x, edges).relu(), edges), labels).backward()
    optimizer.step()
    own.step()
