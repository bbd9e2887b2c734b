"""A rank of real PyTorch that trains a little and then ends badly: exits.py HOW."""

import ctypes
import os
import signal
import sys
import time

import torch

ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)


def train(seconds):
    gemm = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        gemm = (gemm @ gemm).clamp(-1, 1)
        torch.cuda.synchronize()


STORE = b"""
.version 6.4
.target sm_60
.address_size 64
.visible .entry store_at_nothing() {
 .reg .u64 %r1;
 .reg .pred %p1;
 mov.u64 %r1, 64;
 st.global.u64 [%r1], %r1;
AGAIN:
 add.u64 %r1, %r1, 1;
 setp.lt.u64 %p1, %r1, 100000000;
 @%p1 bra AGAIN;
 ret;
}
"""


def store_at_nothing(blocks):
    driver, module, kernel = ctypes.CDLL(None), ctypes.c_void_p(), ctypes.c_void_p()
    assert driver.cuModuleLoadData(ctypes.byref(module), STORE) == 0
    assert driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"store_at_nothing") == 0
    driver.cuLaunchKernel(kernel, blocks, 1, 1, 64, 1, 1, 0, None, None, None)


def end_badly(how):
    if how == "exception":
        raise ValueError("bad loss")
    if how == "segfault":
        ctypes.string_at(0)
    if how == "abort":
        os.abort()
    if how == "exit":
        sys.exit(3)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "memory":
        torch.empty(1 << 40, device="cuda")
    if how == "assert":
        torch.zeros(4, device="cuda")[torch.tensor([9], device="cuda")].sum().item()
    if how in ("address", "many"):
        # Of many blocks, those with the exception have ended when the driver writes the core dump.
        store_at_nothing(3 if how == "address" else 4096)
        torch.cuda.synchronize()
    if how == "nccl":
        # Two ranks on one device, which NCCL refuses.
        communicators, devices = (ctypes.c_void_p * 2)(), (ctypes.c_int * 2)(0, 0)
        code = ctypes.CDLL(None).ncclCommInitAll(communicators, 2, devices)
        raise RuntimeError(f"NCCL says {code}")


train(4)
end_badly(sys.argv[1])
