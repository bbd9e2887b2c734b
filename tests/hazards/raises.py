"""Uncaught exceptions after the GPU was used: in a thread, whose exception is only printed, and then in the main
thread. Ends with exit code 1."""

import sys
import threading
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hook"))
import gpu  # noqa: E402


def work():
    raise ValueError("in a thread")


gpu.ok(gpu.gemm_ex(256, 256, 256))
gpu.sync()
thread = threading.Thread(target=work, name="worker")
thread.start()
thread.join()
raise KeyError("in the main thread")
