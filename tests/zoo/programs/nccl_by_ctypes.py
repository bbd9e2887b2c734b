"""NCCL through ctypes, as in a custom framework: only the GEMMs and derivatives are PyTorch's."""

import ctypes
import importlib.util
import pathlib

import own
import torch
import torch.distributed as dist

FLOAT, AVERAGE = 7, 4


class Unique(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


(wheel,) = importlib.util.find_spec("nvidia.nccl").submodule_search_locations
nccl = ctypes.CDLL(str(pathlib.Path(wheel, "lib", "libnccl.so.2")))
nccl.ncclCommInitRank.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_int, Unique, ctypes.c_int]
nccl.ncclAllReduce.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p,
]  # fmt: skip
nccl.ncclGetErrorString.restype = ctypes.c_char_p


def check(code):
    if code:
        raise RuntimeError(nccl.ncclGetErrorString(code).decode())


# The ranks find each other through torchrun's store.
store, rank, world = next(dist.rendezvous("env://"))
unique, communicator = Unique(), ctypes.c_void_p()
if rank == 0:
    check(nccl.ncclGetUniqueId(ctypes.byref(unique)))
    store.set("nccl", bytes(unique))
unique = Unique.from_buffer_copy(store.get("nccl"))
check(nccl.ncclCommInitRank(ctypes.byref(communicator), world, unique, rank))


def average(tensors):
    stream = torch.cuda.current_stream().cuda_stream
    check(nccl.ncclGroupStart())
    for tensor in tensors:
        at = tensor.data_ptr()
        check(nccl.ncclAllReduce(at, at, tensor.numel(), FLOAT, AVERAGE, communicator, stream))
    check(nccl.ncclGroupEnd())


WIDTH = 2048
torch.manual_seed(0)
weights = [(torch.randn(WIDTH, WIDTH, device=own.DEVICE) / WIDTH**0.5).requires_grad_() for _ in range(4)]
momenta = [torch.zeros_like(weight) for weight in weights]
torch.manual_seed(rank)
step = 0
while True:
    h = torch.randn(4096, WIDTH, device=own.DEVICE)
    for weight in weights:
        h = torch.nn.functional.gelu(h @ weight)
    loss = h.square().mean()
    gradients = torch.autograd.grad(loss, weights)
    average(gradients)
    with torch.no_grad():
        for weight, momentum, gradient in zip(weights, momenta, gradients):
            momentum.mul_(0.9).add_(gradient)
            weight.sub_(momentum, alpha=1e-3)
    step += 1
    own.step(step)
    if step % 10 == 0:
        print(step, loss.item(), flush=True)
