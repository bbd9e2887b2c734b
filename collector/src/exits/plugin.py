"""Runs one plugin for one rank's end: `python3 -c SOURCE FILE`, with the report as JSON on the standard input.

A plugin has any of `xpu_top_exit(report)`, and xpu-timer's `xpu_timer_parse_python_exception(exc_type, exc_value,
exc_traceback, infos)` and `xpu_timer_parse_cpp_exception(stack_infos)`.
"""

import builtins
import json
import runpy
import sys
import types


def main():
    given = json.load(sys.stdin)
    plugin = runpy.run_path(sys.argv[1], run_name="xpu_top_exit_plugin")
    infos = given["infos"]
    call(plugin, "xpu_top_exit", lambda: (given["report"],))
    if given["exception"]:
        call(plugin, "xpu_timer_parse_python_exception", lambda: (*raised(given["exception"]), infos))
    if given["signal"]:
        call(plugin, "xpu_timer_parse_cpp_exception", lambda: (signalled(given, infos),))


def call(plugin, name, arguments):
    if name in plugin:
        plugin[name](*arguments())


def raised(exception):
    """An exception of the same name and message, with a traceback through the same lines."""
    kind = getattr(builtins, exception["kind"], None)
    try:
        value = kind(exception["message"])
        assert isinstance(value, BaseException)
    except Exception:
        *module, name = exception["kind"].split(".")
        kind = type(name, (Exception,), {"__module__": ".".join(module) or "__main__"})
        value = kind(exception["message"])
    trace = None
    for frame in reversed(exception["frames"]):
        trace = traced(frame, trace)
    return kind, value.with_traceback(trace), trace


def traced(frame, inner):
    """A traceback with a frame that runs one line of code: it raises, at that line of that file."""
    line = min(max(frame["line"], 1), 1_000_000)
    code = compile("\n" * (line - 1) + "raise Exception", frame["file"] or "?", "exec")
    names = {"co_name": frame["function"]}
    if hasattr(code, "co_qualname"):
        names["co_qualname"] = frame["function"]
    try:
        exec(code.replace(**names), {"__name__": "__main__"})
    except Exception as error:
        own = error.__traceback__.tb_next
    return types.TracebackType(inner, own.tb_frame, own.tb_lasti, own.tb_lineno)


def signalled(given, infos):
    frames = [
        {
            "address": frame["address"],
            "offset": frame["offset"],
            "function_name": frame["function"],
            "file": frame["file"],
        }
        for frame in reversed(given["frames"])
    ]
    return {"signal": given["signal"], "frame_infos": frames, **infos}


main()
