"""PyTorch's hook after an optimizer step, with its public API, for tests without PyTorch.

`import_torch()` makes a module `torch.optim.optimizer` with `register_optimizer_step_post_hook`. The `step` of the
optimizers here calls each registered hook. tests/zoo and tests/python/test_launchers.py use real PyTorch.
"""

import inspect
import sys
import time
import types

registered = []


class Adam:
    def __init__(self, parameters):
        self.param_groups = [{"params": parameters}]

    def step(self, fails=False):
        if fails:
            raise ValueError("on purpose")
        for hook in registered:
            hook(self, (), {})


class SGD(Adam):
    pass


def import_torch():
    module = types.ModuleType("torch.optim.optimizer")
    module.register_optimizer_step_post_hook = registered.append
    sys.modules["torch.optim.optimizer"] = module


def wait_until_watched():
    """Returns once the hook has registered. Importing the real PyTorch takes longer than this registration; importing
    this module does not."""
    until = time.monotonic() + 30
    while not any(inspect.isfunction(hook) for hook in registered):
        assert time.monotonic() < until, "the hook has not registered with the optimizers"
        time.sleep(0.001)
