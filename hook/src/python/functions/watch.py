"""Watches functions of the program, and Python's garbage collector.

The hook runs this file on the main thread, between two instructions, in a separate namespace that has these names from
the hook: FORMS lists the functions, and the first BUILT_IN of them are always watched. `enter` and `leave` record
calls, and `collected` records garbage collections. `watch(code, number)` and `forget()` set which code is watched.
`profile(on)` is for Pythons without `sys.monitoring`. Attributes are read from the dictionaries of objects, so no code
of the program runs.
"""

# ruff: noqa: F821

import gc
import sys
from types import FunctionType, MethodType, ModuleType

OWN_FILE = "<xpu-top>"
# The other numbers of `sys.monitoring` are reserved for debuggers, coverage, profilers and optimizers.
FREE_TOOLS = (4, 3)
# Largest number of decorators around a function.
LAYERS = 32

# A code object is identified by its address, so it must stay alive.
held = {}
tool = None


def begin():
    """Watches all functions imported by now. Returns the reason if nothing is watched, else an empty line; then the
    functions that are not watched.
    """
    try:
        missing = watch_all(FORMS.splitlines())
        if collected not in gc.callbacks:
            gc.callbacks.append(collected)
        # Attaches only if there is something to watch.
        return "\n".join([attach() if held else "", *missing])
    except BaseException as error:
        end()
        if not is_own(error):
            raise
        return repr(error)


def end():
    """Ends watching. A second call completes an interrupted one."""
    global tool
    gc.callbacks[:] = [callback for callback in gc.callbacks if callback is not collected]
    if tool is not None:
        detach()
        tool = None
    elif held and not hasattr(sys, "monitoring"):
        profile(False)
    forget()
    held.clear()


def is_own(error):
    """Whether the error was raised in this file, and not by a signal handler that ran meanwhile."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return isinstance(error, Exception) and trace is not None and trace.tb_frame.f_code.co_filename == OWN_FILE


def watch_all(forms):
    missing = []
    for number, form in enumerate(forms):
        code = code_of(form)
        if not isinstance(code, str):
            held[number] = code
            watch(code, number)
        # For the built-in functions, a library that is not imported is not reported.
        elif number >= BUILT_IN or form.split("@")[0] in sys.modules:
            missing.append(f"{form}: {code}")
    return missing


def code_of(form):
    """The code of `module@Class@function`, or the reason why there is none."""
    place, *names = form.split("@")
    found = sys.modules.get(place)
    if found is None:
        return f"{place} is not imported"
    for name in names:
        found = member(found, name)
        if found is None:
            return f"{place} has no {name}"
        place = name
    for _ in range(LAYERS):
        inner = unwrapped(found)
        if inner is None:
            break
        found = inner
    return found.__code__ if isinstance(found, FunctionType) else f"{place} is not a Python function"


def member(of, name):
    if isinstance(of, type):
        for base in type.__getattribute__(of, "__mro__"):
            found = type.__getattribute__(base, "__dict__").get(name)
            if found is not None:
                return found
        return None
    found = kept_in(of).get(name)
    if found is None and isinstance(of, ModuleType):
        found = sys.modules.get(f"{kept_in(of).get('__name__')}.{name}")
    if found is None and not isinstance(of, ModuleType):
        found = member(type(of), name)
    return found


def unwrapped(found):
    if isinstance(found, (staticmethod, classmethod, MethodType)):
        return found.__func__
    if isinstance(found, property):
        return found.fget
    return kept_in(found).get("__wrapped__")


def kept_in(of):
    try:
        return object.__getattribute__(of, "__dict__")
    except AttributeError:
        return {}


def attach():
    """Begins watching. Returns the reason if that is impossible, else an empty text."""
    global tool
    if not hasattr(sys, "monitoring"):
        return profile(True)
    monitoring, events = sys.monitoring, sys.monitoring.events
    if tool is None:
        free = [number for number in FREE_TOOLS if monitoring.get_tool(number) is None]
        if not free:
            return "no tool of sys.monitoring is free: " + ", ".join(map(monitoring.get_tool, FREE_TOOLS))
        tool = free[0]
        monitoring.use_tool_id(tool, "xpu-top")
    elif monitoring.get_tool(tool) != "xpu-top":
        return "the tool of sys.monitoring was taken by " + str(monitoring.get_tool(tool))
    for event in (events.PY_START, events.PY_RESUME, events.PY_THROW):
        monitoring.register_callback(tool, event, enter)
    for event in (events.PY_RETURN, events.PY_YIELD, events.PY_UNWIND):
        monitoring.register_callback(tool, event, leave)
    for code in held.values():
        monitoring.set_local_events(tool, code, events.PY_START | events.PY_RESUME | events.PY_RETURN | events.PY_YIELD)
    # These two events cannot be enabled for single code objects. Python reports them only for exceptions.
    monitoring.set_events(tool, events.PY_THROW | events.PY_UNWIND)
    return ""


def detach():
    monitoring, events = sys.monitoring, sys.monitoring.events
    if monitoring.get_tool(tool) != "xpu-top":
        return
    monitoring.set_events(tool, 0)
    for code in held.values():
        monitoring.set_local_events(tool, code, 0)
    for event in (
        events.PY_START,
        events.PY_RESUME,
        events.PY_THROW,
        events.PY_RETURN,
        events.PY_YIELD,
        events.PY_UNWIND,
    ):
        monitoring.register_callback(tool, event, None)
    monitoring.free_tool_id(tool)
