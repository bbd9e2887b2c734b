"""Notes uncaught exceptions, before Python's own functions print them.

The hook runs this once on the main thread, between two of its instructions, in a namespace of its own that holds
`note(text)`, and calls `tell_of_main` and `tell_of_thread` before Python's own `excepthook` of each. None of the
program's names is changed: what it sets or finds in their places is its own.
"""

# ruff: noqa: F821

import sys

# Frames noted, the innermost.
FRAMES = 64
# Letters of a message.
MESSAGE = 2000
PLAIN = {str, bytes, int, float, complex, bool, type(None)}

# The main thread's last noted exception, as a number: no reference is needed, for Python keeps it
# (`sys.last_value`).
told = 0


def attach():
    # A replacement by the program need not call Python's own. Its exception is still available at the end.
    atexit = sys.modules.get("atexit")
    if atexit is not None and sys.excepthook is not sys.__excepthook__:
        atexit.register(at_exit)


def at_exit():
    try:
        value = getattr(sys, "last_value", None)
        if value is not None and id(value) != told:
            tell(type(value), value, value.__traceback__)
    except BaseException:
        pass


def tell_of_main(kind, value, trace):
    global told
    told = id(value)
    tell(kind, value, trace)


def tell_of_thread(args):
    # A thread ends itself that way, and Python reports nothing.
    if args.exc_type is not SystemExit:
        tell(args.exc_type, args.exc_value, args.exc_traceback, getattr(args.thread, "name", "?"))


def tell(kind, value, trace, thread=""):
    try:
        frames = []
        while trace is not None:
            code = trace.tb_frame.f_code
            name = getattr(code, "co_qualname", code.co_name)
            frames.append(f"{name}\t{code.co_filename}\t{trace.tb_lineno}")
            trace = trace.tb_next
        module = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
        parts = [f"{module}{kind.__qualname__}", thread, message(value), "\n".join(frames[-FRAMES:])]
        note("\0".join(parts).encode("utf-8", "replace"))
    except BaseException:
        # The program handles another one already.
        pass


def message(value):
    """Python's message, unless code of the program makes it: that code should run once, when Python prints it."""
    try:
        arguments = BaseException.args.__get__(value)
        plain = [argument for argument in arguments if type(argument) in PLAIN]
        own = type(type(value).__str__) is not type(BaseException.__str__)
        text = ", ".join(map(str, plain)) if own or len(plain) < len(arguments) else str(value)
        return text[:MESSAGE].replace("\0", " ")
    except BaseException:
        return "(its message is not available)"
