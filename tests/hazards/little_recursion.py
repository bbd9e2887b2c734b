"""Python's recursion limit is nearly reached while the GPU is first used: this causes no exception. Exit code 0."""

import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hook"))
import gpu  # noqa: E402


def use():
    going.wait()
    gpu.ok(gpu.gemm_ex(256, 256, 256))
    gpu.sync()


def depth():
    count, frame = 0, sys._getframe()
    while frame:
        count, frame = count + 1, frame.f_back
    return count


def down(left):
    if left:
        return down(left - 1)
    for _ in range(30_000_000):
        pass


going = threading.Event()
thread = threading.Thread(target=use)
thread.start()
sys.setrecursionlimit(300)
going.set()
down(300 - depth() - 1)
thread.join()
print("done")
