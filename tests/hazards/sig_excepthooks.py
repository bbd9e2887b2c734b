"""Uncaught exceptions in a thread and then in the main thread, with Python's own hooks or one of the program's. The
hook library changes none of them. With LOOK in the environment, the script prints what was noted. Exit code 1.
"""

import atexit
import ctypes
import os
import sys
import threading

mode = sys.argv[1]


def ledger():
    for number in os.listdir("/proc/self/fd"):
        path = f"/proc/self/fd/{number}"
        try:
            if "xpu-top-ledger" in os.readlink(path):
                with open(path, "rb") as file:
                    return file.read()
        except OSError:
            pass
    return b""


def said_at_exit():
    print("noted:", b"of the main thread" in ledger())


def own(kind, value, trace):
    print("the program's own:", kind.__name__, file=sys.stderr)
    if mode == "chains":
        sys.__excepthook__(kind, value, trace)


def hooks():
    names = ["excepthook", "__excepthook__"]
    return [getattr(module, name, None) for module in (sys, threading) for name in names]


if "LOOK" in os.environ:
    atexit.register(said_at_exit)
if mode != "plain":
    sys.excepthook = own
before, hashes = hooks(), [hash(hook) for hook in hooks()]
ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)
process, memory = ctypes.CDLL(None), ctypes.c_void_p()
process.cudaMalloc(ctypes.byref(memory), ctypes.c_size_t(100))
for _ in range(1000):
    pass
assert all(one is other for one, other in zip(before, hooks()))
assert hashes == [hash(hook) for hook in hooks()]
assert (sys.excepthook is sys.__excepthook__) == (mode == "plain")
assert threading.excepthook is before[2]
print(repr(sys.__excepthook__).split(" at ")[0], repr(threading.excepthook).split(" at ")[0])

thread = threading.Thread(target=lambda: 1 / 0, name="worker")
thread.start()
thread.join()
if "LOOK" in os.environ:
    print("noted:", b"ZeroDivisionError" in ledger())
raise ValueError(" ".join(["of", "the", "main", "thread"]))
