"""Marks training steps for xpu-top.

    from xpu_top import Tracer

    my_tracer = Tracer()
    for batch in loader:
        train(batch)
        my_tracer.step()

To name a part of the program in captures, use ``with my_tracer.span("data"): ...``.

Works with or without ``xpu-top run``, with or without a GPU; with ``XPU_TOP_DISABLE=1`` it does nothing.
"""

from ._native import Tracer, __version__

__all__ = ["Tracer", "__version__"]
