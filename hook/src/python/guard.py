"""Distinguishes exceptions of the program's signal handlers, for the files that follow.

A handler may run between any two instructions, and what it raises belongs to the program. Other exceptions come from
replaced modules and classes of the program, and must not reach it.
"""

import _signal


def is_of_a_handler(error):
    """Whether a signal handler raised it."""
    try:
        codes = [code_of(_signal.getsignal(number)) for number in range(1, _signal.NSIG)]
        trace = error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code in codes:
                return True
            trace = trace.tb_next
    except Exception:
        # A handler may be an object whose attributes raise.
        pass
    return False


def code_of(handler):
    handler = getattr(handler, "func", handler)
    function = getattr(handler, "__func__", handler)
    if not hasattr(function, "__code__"):
        function = type(handler).__dict__.get("__call__")
    return getattr(function, "__code__", None)
