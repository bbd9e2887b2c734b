"""Notes every step of PyTorch's optimizers, through PyTorch's own hook.

xpu-top runs this file on the main thread, between two instructions, in a separate namespace. There, `stepped` notes a
step, and `ended` notes that an optimizer is gone. PyTorch calls its hook after each completed step: not after a step
that raises, and not after a step that a GradScaler skips. A fused optimizer skips such a step on the GPU; PyTorch calls
the hook for it.
"""

# ruff: noqa: F821

import os
import sys
import weakref

# A weak reference to each optimizer that has stepped, by its address.
known = {}
# A weak reference to the process group of the whole job, this process's rank in it, and its size.
job = (lambda: None, 0, 0)


def attach():
    """Registers. Returns an empty text if another attempt is needed."""
    try:
        return register_hook()
    except Exception as error:
        # The program may have replaced any of these modules.
        if is_of_a_handler(error):
            raise
        return "failed"


def register_hook():
    names = getattr(imported("torch.optim.optimizer"), "__dict__", {})
    register = names.get("register_optimizer_step_post_hook")
    if register is None:
        return "" if is_being_imported("torch.optim.optimizer") else "no hook"
    # Kineto registers during the import of PyTorch. Hooks run in the order of registration, and Kineto's
    # count must include the step that is noted.
    if os.environ.get("KINETO_USE_DAEMON") and is_being_imported("torch"):
        return ""
    register(after_step)
    return "attached"


def imported(name):
    # Without the program's code, if `sys.modules` is of another class.
    return dict.get(sys.modules, name)


def is_being_imported(name):
    return getattr(getattr(imported(name), "__spec__", None), "_initializing", False)


def after_step(optimizer, args, kwargs):
    # The program's classes may raise anything here, but its step must not fail because of that.
    try:
        watch(optimizer)
        name = type(optimizer).__name__
        stepped(id(optimizer), first_parameter(optimizer), name, counted_by_kineto(), *rank_and_size())
    except Exception as error:
        if is_of_a_handler(error):
            raise


# The effect of torch.compiler.disable, which does not exist before PyTorch's compiler is loaded. Without
# this, the compiler would trace the function when it compiles a step, and warn about `stepped`.
after_step._torchdynamo_disable = True


def watch(optimizer):
    address = id(optimizer)
    if address not in known:
        try:
            known[address] = weakref.ref(optimizer, lambda _: forget(address))
        except TypeError:
            # Classes with __slots__ allow no weak reference.
            known[address] = None


def forget(address):
    # Python would print an exception that leaves this function.
    try:
        known.pop(address, None)
        ended(address)
    except Exception:
        pass


def first_parameter(optimizer):
    """The address of the first parameter. It distinguishes parameter groups: DeepSpeed steps one after another."""
    try:
        for group in optimizer.param_groups:
            parameters = group["params"]
            # A tensor would return a new object as its first element each time.
            if not isinstance(parameters, (list, tuple)):
                return id(parameters)
            if parameters:
                return id(parameters[0])
    except Exception as error:
        if is_of_a_handler(error):
            raise
    return 0


def counted_by_kineto():
    """The number of calls that PyTorch's profiler has counted, by which its traces begin. 0 if it counts none."""
    try:
        return vars(sys.modules["torch.autograd.profiler"])["KinetoStepTracker"]._current_step
    except (AttributeError, KeyError, TypeError):
        return 0


def rank_and_size():
    """This process's rank and the job's size by torch.distributed. The size is 0 if the program does not use it."""
    global job
    try:
        distributed = vars(sys.modules["torch.distributed"])
        group = distributed["group"].WORLD
        if group is not None and group is not job[0]():
            job = (weakref.ref(group), distributed["get_rank"](), distributed["get_world_size"]())
    except Exception as error:
        if is_of_a_handler(error):
            raise
    return job[1:]
