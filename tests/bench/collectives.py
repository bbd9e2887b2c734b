"""Prints the nanoseconds of an ncclAllReduce that Python calls by ctypes: the best and the median of many batches.
The call site has been seen before. Then prints whether the hook's record has it."""

import ctypes
import glob
import os
import statistics
import time

BATCH, REPEATS = 2000, 25


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


nccl = ctypes.CDLL("libnccl.so.2")
communicator = ctypes.c_void_p()
nccl.ncclCommInitRank(ctypes.byref(communicator), 8, UniqueId(b"7"), 0)
all_reduce = nccl.ncclAllReduce
arguments = [None, None, ctypes.c_size_t(1 << 20), 9, 0, communicator, None]


def reduce_batch():
    before = time.perf_counter_ns()
    for _ in range(BATCH):
        all_reduce(*arguments)
    return (time.perf_counter_ns() - before) / BATCH


# PyTorch, too, has several functions above the call.
def step():
    return reduce_batch()


def epoch():
    return step()


def train():
    return epoch()


def has_site():
    memories = (file for file in glob.glob("/proc/self/fd/*") if "memfd:" in os.path.realpath(file))
    return any(b"reduce_batch" in open(file, "rb").read() for file in memories)


took = []
for _ in range(REPEATS):
    time.sleep(0.07)
    took.append(train())
print(f"{min(took):.1f} {statistics.median(took):.1f} {int(has_site())}")
