"""CUDA libraries in one process: torch, CuPy, JAX. The mapped copies of the runtime are printed on stderr."""

import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import cupy
import torch

a = torch.eye(512, device="cuda") * 2
print("torch", (a @ a).sum().item(), flush=True)
b = cupy.eye(512, dtype=cupy.float32) * 3
print("cupy", float((b @ b).sum()), flush=True)
kernel = cupy.RawKernel('extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2; }', "twice")
kernel((1,), (256,), (b,))
print("cupy kernel", float(b.sum()), flush=True)

import jax.numpy as jnp  # noqa: E402

d = jnp.eye(512) * 5
print("jax", float((d @ d).sum()), flush=True)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    print("torch again", (a @ a).sum().item(), flush=True)
maps = {
    line.split()[-1]
    for line in open("/proc/self/maps")
    if "/libcudart" in line or "/libcublas." in line or "/libnccl" in line
}
print("mapped:", *sorted(maps), file=sys.stderr)
