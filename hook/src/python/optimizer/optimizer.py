"""Notes every step of PyTorch's optimizers, through PyTorch's own hook.

The hook runs this on the main thread, between two of its instructions, in a namespace of its own in which `stepped`
notes a step, and `ended` that an optimizer is gone. PyTorch calls the hook after a step that was made: not after one
that raises, nor after one that a GradScaler skips. Fused optimizers skip such a step on the GPU: for these the hook is
called.
"""

# ruff: noqa: F821

import os
import sys
import weakref

# Of each optimizer that has stepped, by its address.
known = {}
# The process group of the whole job by a weak reference, this process's rank in it, and its size.
job = (lambda: None, 0, 0)


def attach():
    """Any text: nothing is left to do. Empty: try again."""
    names = getattr(sys.modules.get("torch.optim.optimizer"), "__dict__", {})
    register = names.get("register_optimizer_step_post_hook")
    if register is None:
        return "" if is_being_imported("torch.optim.optimizer") else "no hook"
    # Kineto registers as PyTorch is imported. Hooks run in the order of registration, and a step is noted with the
    # count that includes it.
    if os.environ.get("KINETO_USE_DAEMON") and is_being_imported("torch"):
        return ""
    register(after_step)
    return "attached"


def is_being_imported(name):
    return getattr(getattr(sys.modules.get(name), "__spec__", None), "_initializing", False)


def after_step(optimizer, args, kwargs):
    # The program's own classes may raise anything here: its step must not fail by this.
    try:
        watch(optimizer)
        name = type(optimizer).__name__
        stepped(id(optimizer), first_parameter(optimizer), name, counted_by_kineto(), *rank_and_size())
    except Exception:
        pass


# As by torch.compiler.disable, which is not there before PyTorch's compiler is loaded: the compiler would look into
# the function where it compiles a step, and warn of `stepped`.
after_step._torchdynamo_disable = True


def watch(optimizer):
    address = id(optimizer)
    if address not in known:
        try:
            known[address] = weakref.ref(optimizer, lambda _: forget(address))
        except TypeError:
            # A class with __slots__.
            known[address] = None


def forget(address):
    # Python would print an exception that is raised here.
    try:
        known.pop(address, None)
        ended(address)
    except Exception:
        pass


def first_parameter(optimizer):
    """DeepSpeed steps one optimizer for one parameter group after the other: the first parameter distinguishes them."""
    try:
        for group in optimizer.param_groups:
            parameters = group["params"]
            # Of a tensor, each first element would be another object.
            if not isinstance(parameters, (list, tuple)):
                return id(parameters)
            if parameters:
                return id(parameters[0])
    except Exception:
        pass
    return 0


def counted_by_kineto():
    """Calls counted by PyTorch's profiler: its traces begin by that number. 0 if it counts none."""
    try:
        return vars(sys.modules["torch.autograd.profiler"])["KinetoStepTracker"]._current_step
    except (AttributeError, KeyError, TypeError):
        return 0


def rank_and_size():
    """Of this process by torch.distributed; a size of 0 if the program does not use it."""
    global job
    try:
        distributed = vars(sys.modules["torch.distributed"])
        group = distributed["group"].WORLD
        if group is not None and group is not job[0]():
            job = (weakref.ref(group), distributed["get_rank"](), distributed["get_world_size"]())
    except Exception:
        pass
    return job[1:]
