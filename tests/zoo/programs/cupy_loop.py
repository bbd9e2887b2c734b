"""CuPy alone: least squares by gradient descent."""

import os
import time

import cupy

log = open(os.environ.get("ZOO_LOG", "/dev/null") + ".0", "w", buffering=1)
a, b = cupy.random.rand(8192, 4096, dtype=cupy.float32), cupy.random.rand(8192, 64, dtype=cupy.float32)
x, step = cupy.zeros((4096, 64), dtype=cupy.float32), 0
while True:
    x -= 1e-7 * (a.T @ (a @ x - b))
    step += 1
    log.write(f"{time.time():.6f} {step}\n")
    if step % 20 == 0:
        float(cupy.abs(x).max())
