"""Notes uncaught exceptions, before Python's own functions print them.

The hook runs this file once on the main thread, between two instructions, in a separate namespace that holds
`note(text)`. It calls `note_of_main` before Python's `sys.__excepthook__`, and `note_of_thread` before
`threading.__excepthook__`. No name that the program can see changes.
"""

# ruff: noqa: F821

import sys

# Number of innermost frames that are noted.
FRAMES = 64
# Longest noted message, in characters.
MESSAGE = 2000
PLAIN = {str, bytes, int, float, complex, bool, type(None)}

# The id of the main thread's last noted exception. A reference is not needed, because Python keeps one
# (`sys.last_value`).
noted = 0


def attach():
    # If the program has replaced the function, the replacement may not call Python's own. The exception is
    # still available at exit.
    try:
        atexit = dict.get(sys.modules, "atexit")
        if atexit is not None and sys.excepthook is not sys.__excepthook__:
            atexit.register(at_exit)
    except Exception as error:
        if is_of_a_handler(error):
            raise


def at_exit():
    try:
        value = getattr(sys, "last_value", None)
        if value is not None and id(value) != noted:
            note_exception(type(value), value, value.__traceback__)
    except BaseException:
        pass


def note_of_main(kind, value, trace):
    global noted
    noted = id(value)
    note_exception(kind, value, trace)


def note_of_thread(args):
    # A thread may end itself with SystemExit; Python does not report it.
    if args.exc_type is not SystemExit:
        note_exception(args.exc_type, args.exc_value, args.exc_traceback, getattr(args.thread, "name", "?"))


def note_exception(kind, value, trace, thread=""):
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
        # The program already handles another exception.
        pass


def message(value):
    """Python's message; if the program's code would make it, only the plain arguments: that code must run only once."""
    try:
        arguments = BaseException.args.__get__(value)
        plain = [argument for argument in arguments if type(argument) in PLAIN]
        own = type(type(value).__str__) is not type(BaseException.__str__)
        text = ", ".join(map(str, plain)) if own or len(plain) < len(arguments) else str(value)
        return text[:MESSAGE].replace("\0", " ")
    except BaseException:
        return "(its message is not available)"
