"""The C functions of CUDA's libraries that the demo's ranks call."""

import ctypes
from ctypes import POINTER, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p


class Dim3(ctypes.Structure):
    _fields_ = [("x", c_uint), ("y", c_uint), ("z", c_uint)]


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", c_char * 128)]


ANSWER = POINTER(c_void_p)
SIGNATURES = {
    "cudaSetDevice": [c_int],
    "cudaGetDeviceCount": [POINTER(c_int)],
    "cudaMalloc": [ANSWER, c_size_t],
    "cudaMemcpyAsync": [c_void_p, c_void_p, c_size_t, c_int, c_void_p],
    "__cudaLaunchKernel": [c_void_p, Dim3, Dim3, c_void_p, c_size_t, c_void_p],
    "cudaStreamCreateWithFlags": [ANSWER, c_uint],
    "cudaStreamSynchronize": [c_void_p],
    "cudaStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cudaEventCreateWithFlags": [ANSWER, c_uint],
    "cudaEventRecord": [c_void_p, c_void_p],
    "cublasCreate_v2": [ANSWER],
    "cublasSetStream_v2": [c_void_p, c_void_p],
    "cublasGemmEx": [c_void_p]
    + [c_int] * 5
    + [c_void_p, c_void_p, c_int, c_int, c_void_p, c_int, c_int, c_void_p, c_void_p]
    + [c_int] * 4,
    "cublasLtCreate": [ANSWER],
    "cublasLtMatmulDescCreate": [ANSWER, c_int, c_int],
    "cublasLtMatrixLayoutCreate": [ANSWER, c_int, c_uint64, c_uint64, ctypes.c_int64],
    "cublasLtMatmul": [c_void_p] * 14 + [c_size_t, c_void_p],
    "ncclGetUniqueId": [POINTER(UniqueId)],
    "ncclCommInitRank": [ANSWER, c_int, UniqueId, c_int],
    "ncclAllReduce": [c_void_p, c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclCommSplit": [c_void_p, c_int, c_int, ANSWER, c_void_p],
    "ncclSend": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclRecv": [c_void_p, c_size_t, c_int, c_int, c_void_p, c_void_p],
    "ncclGroupStart": [],
    "ncclGroupEnd": [],
    "ncclCommDestroy": [c_void_p],
    "ncclCommAbort": [c_void_p],
}


class Cuda:
    """The C functions. Each raises an error if it fails."""

    def __init__(self):
        for library in ("libcudart.so.13", "libcublas.so.13", "libcublasLt.so.13", "libnccl.so.2"):
            ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
        everything = ctypes.CDLL(None)
        for name, arguments in SIGNATURES.items():
            function = getattr(everything, name)
            function.argtypes, function.restype, function.errcheck = arguments, c_int, self._check
            setattr(self, name.lstrip("_"), function)

    @staticmethod
    def _check(code, function, _arguments):
        if code != 0:
            raise RuntimeError(f"{function.__name__} failed with code {code}")
        return code

    @staticmethod
    def made(create, *arguments):
        """The handle that `create` stores."""
        handle = c_void_p()
        create(ctypes.byref(handle), *arguments)
        return handle
