"""Notes every step of PyTorch's optimizers, by PyTorch's own hook for that.

The hook runs this on the main thread, between two of its instructions, in a namespace of its own in which `stepped`
notes a step. PyTorch calls the hook after a step that was made: not after one that a GradScaler skips, or that raises.
"""

# ruff: noqa: F821

import sys


def attach():
    """Anything but nothing: there is no more to do."""
    try:
        register = vars(sys.modules["torch.optim.optimizer"])["register_optimizer_step_post_hook"]
    except (KeyError, TypeError):
        return ""
    register(after_step)
    return "attached"


def after_step(optimizer, args, kwargs):
    # DeepSpeed steps one optimizer for one group of parameters after the other: the first parameter tells them apart.
    first = 0
    try:
        for group in optimizer.param_groups:
            if group["params"]:
                first = id(group["params"][0])
                break
    except (AttributeError, KeyError, IndexError, TypeError):
        pass
    stepped(id(optimizer), first, type(optimizer).__name__, counted_by_kineto())


def counted_by_kineto():
    """Calls that PyTorch's own profiler has counted: a trace of it begins by that number. 0 where it counts none."""
    try:
        return vars(sys.modules["torch.autograd.profiler"])["KinetoStepTracker"]._current_step
    except (AttributeError, KeyError, TypeError):
        return 0
