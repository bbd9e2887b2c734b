from contextlib import AbstractContextManager
from typing import Literal, Optional, SupportsFloat, SupportsIndex

__version__: str

class Tracer:
    """Marks training steps for xpu-top."""

    def __init__(self) -> None: ...
    def step(
        self,
        n: Optional[int] = None,
        *,
        tokens: Optional[SupportsIndex] = None,
        samples: Optional[SupportsIndex] = None,
        loss: Optional[SupportsFloat] = None,
    ) -> None:
        """Mark the end of a training step: of the next one, or of number ``n``, counted from 1.

        ``tokens`` and ``samples`` are what this rank worked through in it; ``loss`` is the last one known. A loss that
        is a CUDA tensor is read as ``float(loss)`` would be, which waits for the GPU: give it where the program reads
        it anyway.
        """
    def span(self, name: str) -> AbstractContextManager[object]:
        """A part of the program under a name, in captures: ``with tracer.span("data"): ...``."""
    @property
    def source(self) -> Literal["preloaded", "packaged", "disabled", "missing"]:
        """Where the marks go."""
