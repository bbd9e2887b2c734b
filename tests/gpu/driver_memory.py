"""Compares the memory that the hook shows as held with the program's own, on one GPU.

    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True xpu-top run --job memory -- python3 driver_memory.py XPU_TOP

Without the variable, PyTorch allocates by cudaMalloc. Then the driver's functions by ctypes. Prints a line per figure,
and ends with 1 if one is wrong.
"""

import json
import os
import subprocess
import sys
import time
from ctypes import CDLL, byref, c_int, c_size_t, c_uint, c_uint64, c_void_p

import torch

XPU_TOP = sys.argv[1]
MIB = 1 << 20
wrong = []


def held():
    """Memory held by the hook's figures, and the allocations and frees."""
    time.sleep(2.5)
    command = [XPU_TOP, "status", "--now", "--json", "--rank", "0", "--job", "memory", "--wait", "4"]
    rank = json.loads(subprocess.run(command, capture_output=True, text=True).stdout)["ranks"][0]
    memory = rank["activity"]["memory"]
    return rank["memory_held_bytes"], memory


def verdict(what, own, seen, **more):
    print(json.dumps({"what": what, "right": own == seen, "own": own, "hook": seen, **more}), flush=True)
    if own != seen:
        wrong.append(what)


torch.cuda.set_device(0)
kept = torch.zeros(300 * MIB, dtype=torch.uint8, device="cuda")
many = [torch.zeros(50 * MIB, dtype=torch.uint8, device="cuda") for _ in range(20)]
torch.mm(*[torch.ones(2048, 2048, device="cuda")] * 2)
how = os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "cudaMalloc")
seen, memory = held()
verdict(f"reserved by PyTorch, {how}", torch.cuda.memory_reserved(), seen, sites=memory.get("sites"))
del many
torch.cuda.empty_cache()
verdict(f"after empty_cache, {how}", torch.cuda.memory_reserved(), held()[0])
try:
    torch.empty(400 << 30, dtype=torch.uint8, device="cuda")
    raise SystemExit("400 GiB were granted")
except torch.cuda.OutOfMemoryError as error:
    print(json.dumps({"what": "the refusal", "message": str(error)[:200]}))
verdict(f"after a refusal, {how}", torch.cuda.memory_reserved(), held()[0])

cuda = CDLL("libcuda.so.1")
base = held()[0]


def ok(code):
    assert code == 0, code


def made(function, *arguments):
    handle = c_void_p()
    ok(function(byref(handle), *arguments))
    return handle


# A CUmemAllocationProp: pinned memory of device 0.
properties = (c_int * 8)(1, 0, 1, 0)
granularity = c_size_t()
ok(cuda.cuMemGetAllocationGranularity(byref(granularity), properties, 0))
piece = granularity.value
space = made(cuda.cuMemAddressReserve, c_size_t(64 * piece), c_size_t(0), c_uint64(0), c_uint64(0)).value
handles = [made(cuda.cuMemCreate, c_size_t(n * piece), properties, c_uint64(0)) for n in (3, 5, 7)]
at = space
for n, handle in zip((3, 5, 7), handles):
    ok(cuda.cuMemMap(c_uint64(at), c_size_t(n * piece), c_size_t(0), handle, c_uint64(0)))
    at += n * piece
verdict("created by cuMemCreate", base + 15 * piece, held()[0], piece=piece)
ok(cuda.cuMemRelease(handles[0]))
ok(cuda.cuMemUnmap(c_uint64(space + 3 * piece), c_size_t(12 * piece)))
ok(cuda.cuMemRelease(handles[1]))
# The first is still mapped, the third has a handle.
verdict("released or unmapped in part", base + 10 * piece, held()[0])
ok(cuda.cuMemUnmap(c_uint64(space), c_size_t(3 * piece)))
ok(cuda.cuMemRelease(handles[2]))
verdict("all released and unmapped", base, held()[0])
stream = c_void_p(torch.cuda.current_stream().cuda_stream)
plain = made(cuda.cuMemAlloc_v2, c_size_t(11 * MIB))
managed = made(cuda.cuMemAllocManaged, c_size_t(13 * MIB), c_uint(1))
queued = made(cuda.cuMemAllocAsync, c_size_t(17 * MIB), stream)
verdict("cuMemAlloc, cuMemAllocManaged, cuMemAllocAsync", base + 41 * MIB, held()[0])
for address in (plain, managed):
    ok(cuda.cuMemFree_v2(address))
ok(cuda.cuMemFreeAsync(queued, stream))
torch.cuda.synchronize()
verdict("all freed", base, held()[0])
print(f"{len(wrong)} wrong: {', '.join(wrong)}" if wrong else "all right")
sys.exit(bool(wrong))
