"""What a program says of itself: each step that it counts, with the time, goes to a file of its rank.

own.step()      one more step is done
own.SMALL       there is no GPU: sizes are to be small
"""

import ctypes
import os
import time

import torch

GPU = torch.cuda.is_available()
SMALL = not GPU
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if GPU else torch.device("cpu")
RANK = int(os.environ.get("RANK", 0))

torch.set_num_threads(1) if SMALL else torch.cuda.set_device(DEVICE)
torch.manual_seed(RANK)

if SMALL:
    # Without a GPU PyTorch calls nothing of CUDA, which is what wakes the hook, if there is one.
    getattr(ctypes.CDLL(None), "cudaFree", lambda _: 0)(None)

_log = open(f"{os.environ['ZOO_LOG']}.{RANK}", "w", buffering=1) if "ZOO_LOG" in os.environ else None
_steps = 0


def step(completed=None):
    global _steps
    _steps = _steps + 1 if completed is None else completed
    if _log:
        _log.write(f"{time.time():.6f} {_steps}\n")


def join():
    """The process group of the job."""
    import torch.distributed as dist

    dist.init_process_group("nccl" if GPU else "gloo", **({"device_id": DEVICE} if GPU else {}))
    return dist


def size(large, small):
    return small if SMALL else large
