"""Plain PyTorch without an optimizer or DDP: the script itself updates the parameters and reduces the gradients."""

import own
import torch

dist = own.join()
WIDTH = own.size(2048, 32)
weights = [(torch.randn(WIDTH, WIDTH, device=own.DEVICE) / WIDTH**0.5).requires_grad_() for _ in range(6)]
x = torch.randn(own.size(4096, 16), WIDTH, device=own.DEVICE)
while True:
    h = x
    for weight in weights:
        h = torch.relu(h @ weight)
    gradients = torch.autograd.grad(h.square().mean(), weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            dist.all_reduce(gradient)
            weight -= 1e-4 * gradient
    own.step()
