"""An exact Gaussian process of GPyTorch: conjugate gradients or Cholesky, no layers."""

import gpytorch
import own
import torch

POINTS = own.size(6000, 64)
x = torch.rand(POINTS, 4, device=own.DEVICE)
y = torch.sin(6 * x.sum(1)) + 0.1 * torch.randn(POINTS, device=own.DEVICE)


class Process(gpytorch.models.ExactGP):
    def __init__(self, likelihood):
        super().__init__(x, y, likelihood)
        self.mean = gpytorch.means.ConstantMean()
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=4))

    def forward(self, points):
        return gpytorch.distributions.MultivariateNormal(self.mean(points), self.kernel(points))


likelihood = gpytorch.likelihoods.GaussianLikelihood().to(own.DEVICE)
model = Process(likelihood).to(own.DEVICE).train()
evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    loss = -evidence(model(x), y)
    loss.backward()
    optimizer.step()
    own.step()
