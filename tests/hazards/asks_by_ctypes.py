"""NCCL by ctypes, as in pynccl of vLLM and SGLang: each function is looked up by dlsym on the library's handle."""

import ctypes

nccl = ctypes.CDLL("libnccl.so.2")


class UniqueId(ctypes.Structure):
    _fields_ = [("internal", ctypes.c_char * 128)]


unique, communicator = UniqueId(), ctypes.c_void_p()
memory = ctypes.create_string_buffer(4096)
codes = [nccl.ncclGetUniqueId(ctypes.byref(unique)), nccl.ncclCommInitRank(ctypes.byref(communicator), 1, unique, 0)]
for _ in range(300):
    codes.append(nccl.ncclAllReduce(memory, memory, ctypes.c_size_t(64), 9, 0, communicator, None))
codes.append(nccl.ncclCommDestroy(communicator))
print(len(codes), "calls, of which failed", sum(code != 0 for code in codes))
