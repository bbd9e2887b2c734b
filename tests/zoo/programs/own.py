"""Writes what a program counts itself: each step, with its time, to a file of the rank.

own.step()      one more step is done
own.SMALL       there is no GPU: sizes must be small

With ZOO_COUNT a rank also writes, after some 20 s, the number of GEMMs and collectives, from an independent counter
(tests/gpu/count.c) and from the hook. It also writes the FLOPs of a step's GEMMs, from PyTorch's counter.
"""

import ctypes
import json
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
    # Without a GPU PyTorch makes no CUDA call, but the hook starts at the first one.
    getattr(ctypes.CDLL(None), "cudaFree", lambda _: 0)(None)

_log = open(f"{os.environ['ZOO_LOG']}.{RANK}", "w", buffering=1) if "ZOO_LOG" in os.environ else None
_steps = 0


class _Counts:
    GEMMS = (
        "cublasGemmEx cublasGemmStridedBatchedEx cublasSgemm_v2 cublasDgemm_v2 cublasSgemmStridedBatched "
        "cublasDgemmStridedBatched cublasSgemmEx cublasGemmBatchedEx cublasSgemmBatched cublasHgemm cublasLtMatmul"
    ).split()
    COLLECTIVES = "AllReduce AllGather ReduceScatter Broadcast Bcast Reduce AlltoAll Gather Scatter".split()
    # The steps whose FLOPs are counted. The first steps may do other work.
    FROM, TO = 3, 5

    def __init__(self, path):
        self.path, self.since, self.counter, self.said = path, time.monotonic(), None, {}
        self.process = ctypes.CDLL(None)
        self.process.xpu_top_counter.restype = self.process.count_of.restype = ctypes.c_uint64

    def step(self, completed):
        if os.environ["ZOO_COUNT"] == "flops":
            self.flops(completed)
        if "gemms" not in self.said and time.monotonic() > self.since + 20:
            seen, collectives = self.process.xpu_top_counter, ["nccl" + name for name in self.COLLECTIVES]
            self.said["gemms"] = [seen(b"gemms"), self.called(self.GEMMS)]
            self.said["collectives"] = [seen(b"collectives"), self.called(collectives)]
            self.write()

    def called(self, names):
        return sum(self.process.count_of(name.encode()) for name in names)

    def flops(self, completed):
        from torch.utils.flop_counter import FlopCounterMode

        if completed == self.FROM and not self.counter:
            self.counter = FlopCounterMode(display=False)
            self.counter.__enter__()
        elif completed >= self.TO and self.counter and "flops" not in self.said:
            self.counter.__exit__(None, None, None)
            counts = self.counter.get_flop_counts()["Global"]
            gemms = [count for operation, count in counts.items() if "mm" in str(operation)]
            self.said["flops"] = sum(gemms) / (completed - self.FROM)
            self.write()

    def write(self):
        with open(self.path, "w") as file:
            json.dump(self.said, file)


_counts = _Counts(f"{os.environ['ZOO_LOG']}.counts.{RANK}") if "ZOO_COUNT" in os.environ else None


def step(completed=None):
    global _steps
    _steps = _steps + 1 if completed is None else completed
    if _log:
        _log.write(f"{time.time():.6f} {_steps}\n")
    if _counts:
        _counts.step(_steps)


def join():
    """The process group of the job."""
    import torch.distributed as dist

    dist.init_process_group("nccl" if GPU else "gloo", **({"device_id": DEVICE} if GPU else {}))
    return dist


def size(large, small):
    return small if SMALL else large
