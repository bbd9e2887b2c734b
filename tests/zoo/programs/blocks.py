"""A transformer as in PyTorch's tutorials."""

import own
import torch
from torch import nn


class Transformer(nn.Module):
    def __init__(self, width=None, blocks=None, tokens=None, rows=4):
        super().__init__()
        self.width, self.tokens, self.rows = width or own.size(1024, 32), tokens or own.size(512, 8), rows
        layer = nn.TransformerEncoderLayer(
            self.width, own.size(16, 2), 4 * self.width, dropout=0.0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, blocks or own.size(6, 2), enable_nested_tensor=False)
        self.head = nn.Linear(self.width, self.width)
        if own.GPU:
            self.bfloat16()

    def forward(self, x):
        return self.head(self.layers(x))

    def batch(self, tokens=None):
        dtype = torch.bfloat16 if own.GPU else torch.float32
        return torch.randn(self.rows, tokens or self.tokens, self.width, device=own.DEVICE, dtype=dtype)
