"""A sandbox forbids imports, a stub of PyTorch raises, and `sys.modules` is of another class: none of this may become
an exception of the program at a CUDA call. Ends with exit code 0."""

import builtins
import sys
import time
import types
from pathlib import Path


class Modules(dict):
    """Raises at every lookup of PyTorch's modules."""

    def get(self, name, *default):
        if str(name).startswith("torch"):
            raise LookupError(name)
        return super().get(name, *default)


def refused(*_):
    raise NotImplementedError("a stub")


def forbidden(name, *_, **__):
    imports.append(name)
    raise ImportError(f"{name} is not allowed")


def work():
    for _ in range(12):
        gpu.ok(gpu.gemm_ex(256, 256, 256))
        time.sleep(0.01)


sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hook"))
import gpu  # noqa: E402

imports = []
imports_of_python = builtins.__import__
if "lookups" not in sys.argv:
    builtins.__import__ = forbidden
    work()
for name in ("torch", "torch.optim", "torch.optim.optimizer"):
    sys.modules[name] = types.ModuleType(name)
if "lookups" in sys.argv:
    sys.modules = Modules(sys.modules)
else:
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook = refused
work()
builtins.__import__ = imports_of_python
print("imports:", imports)
