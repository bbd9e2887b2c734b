"""CUDA, cuBLAS and NCCL by their C functions, and the hook's own functions, for the scripts of this folder.

Every call goes through the global scope, so a preloaded library is reached as in a real job. Functions return the
library's code; `ok` raises an exception if it is not 0.
"""

import ctypes
import os
import sys
import time
import warnings
from ctypes import byref, c_double, c_float, c_int, c_int64, c_longlong, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

# Python 3.12 warns at a fork because the hook has a thread. With CUDA itself there are other threads.
warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)

BF16, FLOAT, HALF, E4M3, E5M2, FP4 = 14, 0, 2, 28, 29, 33
COMPUTE_16F, COMPUTE_32F, COMPUTE_TF32 = 64, 68, 77
NCCL_BF16, NCCL_FLOAT, NCCL_NONSENSE = 9, 7, 99

# Without a shared CUDA runtime, a program makes its streams through the driver.
HAS_RUNTIME = "SIMGPU_TIMELINE" not in os.environ
CUDA = "libcudart.so.13" if HAS_RUNTIME else "libcuda.so.1"

for library in (CUDA, "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"):
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
process = ctypes.CDLL(None)

RANK = int(os.environ.get("RANK", 0))
WORLD = int(os.environ.get("WORLD_SIZE", 1))
if "UNNUMBERED" in os.environ:
    # The program knows its rank, but the environment does not show it.
    del os.environ["RANK"], os.environ["WORLD_SIZE"]


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


def ok(code):
    if code != 0:
        raise RuntimeError(f"a call failed with code {code}")


def made(function, *arguments):
    """Calls a function that creates a handle, and returns the handle."""
    handle = c_void_p()
    ok(function(byref(handle), *arguments))
    return handle


if HAS_RUNTIME:
    ok(process.cudaSetDevice(RANK))
    stream = made(process.cudaStreamCreateWithFlags, c_uint(1))
    memory = made(process.cudaMalloc, c_size_t(1 << 30))
else:
    ok(process.cuInit(0))
    context = made(process.cuDevicePrimaryCtxRetain, RANK)
    ok(process.cuCtxSetCurrent(context))
    stream = made(process.cuStreamCreate, c_uint(1))
    memory = made(process.cuMemAlloc_v2, c_size_t(1 << 30))
blas = made(process.cublasCreate_v2)
ok(process.cublasSetStream_v2(blas, stream))
blas_lt = made(process.cublasLtCreate)
one = byref(c_float(1.0))


def gemm_ex(m, n, k, a=0, b=0, dtype=BF16, compute=COMPUTE_32F):
    """`a` and `b` are 1 if the matrix is transposed."""
    return process.cublasGemmEx(
        blas, a, b, m, n, k, one, memory, dtype, k if a else m, memory, dtype, n if b else k,
        one, memory, dtype, m, compute, -1,
    )  # fmt: skip


def strided(m, n, k, batch, dtype=HALF, compute=COMPUTE_16F):
    stride = c_longlong(m * n)
    return process.cublasGemmStridedBatchedEx(
        blas, 0, 1, m, n, k, one, memory, dtype, m, stride, memory, dtype, n, stride,
        one, memory, dtype, m, stride, batch, compute, -1,
    )  # fmt: skip


def sgemm(m, n, k):
    return process.cublasSgemm_v2(blas, 0, 0, m, n, k, one, memory, m, memory, k, one, memory, m)


def matmul(m, n, k, a=0, b=0, batch=1, dtype=BF16, b_type=None, out=None, row=False, with_c=True, compute=COMPUTE_32F):
    """A GEMM by cublasLt. A layout describes its matrix before transposition, in row or column order."""
    description = made(process.cublasLtMatmulDescCreate, compute, FLOAT)
    for attribute, value in ((3, a), (4, b)):
        ok(process.cublasLtMatmulDescSetAttribute(description, attribute, byref(c_int(value)), c_size_t(4)))
    sides = ((k, m) if a else (m, k), (n, k) if b else (k, n), (m, n))
    types = (dtype, dtype if b_type is None else b_type, dtype if out is None else out)
    layouts = []
    for of, (rows, columns) in zip(types, sides):
        leading = c_int64(columns if row else rows)
        layout = made(process.cublasLtMatrixLayoutCreate, of, c_uint64(rows), c_uint64(columns), leading)
        for attribute, value in ((1, int(row)), (5, batch)):
            ok(process.cublasLtMatrixLayoutSetAttribute(layout, attribute, byref(c_int(value)), c_size_t(4)))
        layouts.append(layout)
    in_a, in_b, in_d = layouts
    in_c = in_d if with_c else None
    code = process.cublasLtMatmul(
        blas_lt, description, one, memory, in_a, memory, in_b, one, memory if with_c else None, in_c, memory, in_d,
        None, None, c_size_t(0), stream,
    )  # fmt: skip
    for layout in layouts:
        ok(process.cublasLtMatrixLayoutDestroy(layout))
    ok(process.cublasLtMatmulDescDestroy(description))
    return code


def kernel(number=0, blocks=1):
    """Launches the kernel of this number."""
    function = c_void_p(memory.value + 64 * number)
    threads = 1 if blocks == 1 else 256
    return process.__getattr__("__cudaLaunchKernel")(
        function, Dim3(blocks, 1, 1), Dim3(threads, 1, 1), None, c_size_t(0), stream
    )


def sync():
    ok((process.cudaStreamSynchronize if HAS_RUNTIME else process.cuStreamSynchronize)(stream))


class Config(ctypes.Structure):
    """The first fields of ncclConfig_t as of 2.27."""

    _fields_ = [
        ("size", c_size_t), ("magic", c_uint), ("version", c_uint), ("blocking", c_int), ("cga", c_int),
        ("min_ctas", c_int), ("max_ctas", c_int), ("net", ctypes.c_char_p), ("split_share", c_int),
        ("traffic_class", c_int), ("name", ctypes.c_char_p),
    ]  # fmt: skip


def config(name=None, blocking=True):
    unset = -(2**31)
    size = ctypes.sizeof(Config)
    return byref(
        Config(size, 0xCAFEBEEF, 22809, int(blocking), unset, unset, unset, None, unset, unset, name and name.encode())
    )


def share(name, make):
    """Returns on all ranks what `make` returns on rank 0."""
    file = Path(os.environ.get("RENDEZVOUS", "/nowhere")) / name
    if RANK == 0:
        what = make()
        unfinished = file.with_suffix(".new")
        if WORLD > 1:
            unfinished.write_bytes(bytes(what))
            unfinished.rename(file)
        return what
    while not file.exists():
        time.sleep(0.005)
    return UniqueId.from_buffer_copy(file.read_bytes())


def rounds():
    """Yields numbers until the test writes `over`. If each number has a collective, all ranks end with the same
    number."""
    over, last = (Path(os.environ["RENDEZVOUS"], name) for name in ("over", "last"))
    number = 0
    while not last.exists() or number < int(last.read_text()):
        number += 1
        if RANK == 0 and over.exists():
            # Written before the collective of this number, so every rank that completes it can read the file.
            unfinished = last.with_suffix(".new")
            unfinished.write_text(str(number))
            unfinished.rename(last)
        yield number


def new_id():
    unique = UniqueId()
    ok(process.ncclGetUniqueId(byref(unique)))
    return unique


def communicator():
    """The communicator of all ranks of the job."""
    return made(process.ncclCommInitRank, WORLD, share("unique_id", new_id), RANK)


def state(comm):
    """The state that NCCL reports: 0, 7 while a communicator is being made, or an error."""
    state = c_int(-1)
    ok(process.ncclCommGetAsyncError(comm, byref(state)))
    return state.value


def wait_for(comm):
    while state(comm) == 7:
        time.sleep(0.001)
    ok(state(comm))


def all_reduce(comm, count, dtype=NCCL_BF16):
    return process.ncclAllReduce(memory, memory, c_size_t(count), dtype, 0, comm, stream)


def all_gather(comm, count):
    return process.ncclAllGather(memory, memory, c_size_t(count), NCCL_FLOAT, comm, stream)


def reduce_scatter(comm, count):
    return process.ncclReduceScatter(memory, memory, c_size_t(count), NCCL_FLOAT, 0, comm, stream)


def all_to_all(comm, count):
    return process.ncclAlltoAll(memory, memory, c_size_t(count), NCCL_FLOAT, comm, stream)


def gather(comm, count):
    return process.ncclGather(memory, memory, c_size_t(count), NCCL_FLOAT, 0, comm, stream)


def scatter(comm, count):
    return process.ncclScatter(memory, memory, c_size_t(count), NCCL_FLOAT, 0, comm, stream)


def put_signal(comm, count, peer):
    return process.ncclPutSignal(
        memory, c_size_t(count), NCCL_FLOAT, peer, memory, c_size_t(0), 0, 0, c_uint(0), comm, stream
    )


def signal(comm, peer):
    return process.ncclSignal(peer, 0, 0, c_uint(0), comm, stream)


def wait_signal(comm, peer):
    return process.ncclWaitSignal(1, byref((c_int * 4)(1, peer, 0, 0)), comm, stream)


def bcast(comm, count):
    return process.ncclBcast(memory, c_size_t(count), NCCL_BF16, 0, comm, stream)


def send(comm, count, peer):
    return process.ncclSend(memory, c_size_t(count), NCCL_BF16, peer, comm, stream)


def receive(comm, count, peer):
    return process.ncclRecv(memory, c_size_t(count), NCCL_BF16, peer, comm, stream)


class Group:
    def __enter__(self):
        ok(process.ncclGroupStart())

    def __exit__(self, *_):
        ok(process.ncclGroupEnd())


def capture(work):
    """Captures what `work` launches, and returns a function that launches the graph."""
    graph, executable = c_void_p(), c_void_p()
    ok(process.cudaStreamBeginCapture(stream, 0))
    work()
    ok(process.cudaStreamEndCapture(stream, byref(graph)))
    ok(process.cudaGraphInstantiate(byref(executable), graph, c_size_t(0)))
    return lambda: process.cudaGraphLaunch(executable, stream)


def step(completed=-1):
    process.xpu_top_step(c_int64(completed))


def step_with(tokens, samples=0, loss=float("nan"), completed=-1):
    process.xpu_top_step_with(c_int64(completed), c_uint64(tokens), c_uint64(samples), c_double(loss))


def switch(on):
    process.xpu_top_set_enabled(on)


def counter(name):
    process.xpu_top_counter.restype = c_uint64
    return process.xpu_top_counter(name.encode())


def next_line():
    """Reads a line from the test."""
    return sys.stdin.readline().strip()


def hold():
    """Waits until the test closes the input."""
    sys.stdin.read()
