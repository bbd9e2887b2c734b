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
        """Mark the end of the next training step, or of step number ``n``, counted from 1.

        ``tokens`` and ``samples`` are the rank's work in this step; ``loss`` is the last known loss. A CUDA tensor is
        read with ``float(loss)``, which waits for the GPU: pass it where the program reads it anyway.
        """
    def span(self, name: str) -> AbstractContextManager[object]:
        """Name a part of the program, for captures: ``with tracer.span("data"): ...``."""
    @property
    def source(self) -> Literal["preloaded", "packaged", "disabled", "missing"]:
        """The receiver of the marks."""
