"""Evolution strategies: no gradient and no optimizer. A step evaluates 16 pairs of disturbed weights and moves the
weights to the better ones."""

import own
import torch

WIDTH, ROWS, PAIRS = own.size(2048, 16), own.size(2048, 8), 16
weights = [torch.randn(WIDTH, WIDTH, device=own.DEVICE) / WIDTH**0.5 for _ in range(3)]
x = torch.randn(ROWS, WIDTH, device=own.DEVICE)


def score(weights):
    h = x
    for weight in weights:
        h = torch.tanh(h @ weight)
    return -h.square().mean()


with torch.no_grad():
    while True:
        moves = [torch.zeros_like(weight) for weight in weights]
        for _ in range(PAIRS):
            noise = [0.01 * torch.randn_like(weight) for weight in weights]
            up = score([weight + one for weight, one in zip(weights, noise)])
            down = score([weight - one for weight, one in zip(weights, noise)])
            for move, one in zip(moves, noise):
                move += (up - down) * one
        for weight, move in zip(weights, moves):
            weight += move / PAIRS
        own.step()
