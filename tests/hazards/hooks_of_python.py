"""What Python shows of its hooks and signal handlers, before the GPU is used, after it and a while later. Ends with
exit code 0."""

import signal
import sys
import threading
import time
from pathlib import Path


def show(when):
    print(when, "sys.excepthook is Python's:", sys.excepthook is sys.__excepthook__)
    print(when, "threading.excepthook is Python's:", threading.excepthook is threading.__excepthook__)
    print(when, "sys.unraisablehook is Python's:", sys.unraisablehook is sys.__unraisablehook__)
    print(when, "trace, profile:", sys.gettrace(), sys.getprofile())
    print(when, "threads:", threading.active_count())
    for number in sorted(signal.valid_signals()):
        handler = signal.getsignal(number)
        if handler not in (signal.SIG_DFL, signal.SIG_IGN):
            print(when, number, handler.__name__ if callable(handler) else handler)


def main():
    show("before")
    import gpu

    gpu.ok(gpu.gemm_ex(256, 256, 256))
    show("after")
    for _ in range(50):
        gpu.ok(gpu.gemm_ex(256, 256, 256))
        time.sleep(0.01)
    gpu.sync()
    show("later")
    print("modules:", sorted(name for name in sys.modules if "xpu" in name))


sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hook"))
if __name__ == "__main__":
    main()
