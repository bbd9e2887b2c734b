"""Compares counts of kernels requested by name with torch.profiler's: attention in each of torch's implementations,
an element-wise kernel, and one of Triton's.

    XPU_TOP_KERNELS=flash_fwd:fmha:sdpa:elementwise:triton xpu-top run --job kernels -- python3 kernels.py XPU_TOP
"""

import collections
import ctypes
import json
import os
import subprocess
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

xpu_top = sys.argv[1]
patterns = os.environ["XPU_TOP_KERNELS"].split(":")
CALLS = 40
hook = ctypes.CDLL(None)
x = torch.randn(4, 16, 1024, 128, device="cuda", dtype=torch.bfloat16)


@torch.compile
def compiled(y):
    return torch.sin(y) * torch.cos(y) + y.square()


def attend(backend):
    with sdpa_kernel(backend):
        return scaled_dot_product_attention(x, x, x, is_causal=True)


ATTENTIONS = {
    "flash": lambda: attend(SDPBackend.FLASH_ATTENTION),
    "memory efficient": lambda: attend(SDPBackend.EFFICIENT_ATTENTION),
    "cuDNN": lambda: attend(SDPBackend.CUDNN_ATTENTION),
    "default": lambda: scaled_dot_product_attention(x, x, x, is_causal=True),
    "element-wise": lambda: x * 2,
    "compiled": lambda: compiled(x),
}


def named():
    """The hook's figures of each pattern, once all work is done."""
    torch.cuda.synchronize()
    time.sleep(2.5)
    command = [xpu_top, "status", "--now", "--json", "--rank", "0", "--job", "kernels", "--wait", "4"]
    answer = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)
    kernels = next(line for line in answer["ranks"] if line["rank"] == 0)["activity"]["kernels"]
    return {kernel["pattern"]: kernel for kernel in kernels}, answer["coverage"]["blind"]


for way, work in ATTENTIONS.items():
    try:
        for _ in range(3):
            work()
    except Exception as error:
        print(json.dumps({"way": way, "error": str(error)[:200]}), flush=True)
        continue
    before, _ = named()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(CALLS):
            work()
        torch.cuda.synchronize()
    after, blind = named()
    by_profiler = collections.Counter(event.name for event in profile.events() if event.name)
    grown = {
        pattern: kernel["launches"] - before.get(pattern, {"launches": 0})["launches"]
        for pattern, kernel in after.items()
    }
    line = {
        "way": way,
        "hook": {pattern: count for pattern, count in grown.items() if count},
        "timed": {pattern: after[pattern] for pattern, count in grown.items() if count},
        "torch.profiler": {name[:160]: count for name, count in by_profiler.items() if count >= CALLS},
        "blind": blind,
    }
    print(json.dumps(line), flush=True)
