"""Has the hook told of exceptions that nobody catches, before what was told of them before.

The hook runs this once on the main thread, between two of its instructions, in a namespace of its own that holds
`note(text)`. What the program sets later takes this one's place, and may call it.
"""

# ruff: noqa: F821

import sys

# Frames told of, the innermost.
FRAMES = 64
# Letters of a message.
MESSAGE = 2000


def attach():
    before = getattr(sys, "excepthook", None)
    if before is not None:

        def excepthook(kind, value, trace):
            tell(kind, value, trace, "")
            return before(kind, value, trace)

        sys.excepthook = excepthook
    threading = sys.modules.get("threading")
    if hasattr(threading, "excepthook"):
        attach_to_threads(threading, threading.excepthook)


def attach_to_threads(threading, before):
    def excepthook(args, /):
        # That is how a thread ends itself, and nobody is told of it.
        if args.exc_type is not SystemExit:
            tell(args.exc_type, args.exc_value, args.exc_traceback, getattr(args.thread, "name", "?"))
        return before(args)

    threading.excepthook = excepthook


def tell(kind, value, trace, thread):
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
        # The program has one to tell of already.
        pass


def message(value):
    try:
        return str(value)[:MESSAGE].replace("\0", " ")
    except BaseException:
        return "(its message could not be had)"
