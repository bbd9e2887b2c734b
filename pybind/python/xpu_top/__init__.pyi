from typing import Literal, Optional

__version__: str

class Tracer:
    """Marks training steps for xpu-top."""

    def __init__(self) -> None: ...
    def step(self, completed: Optional[int] = None, /) -> None:
        """Mark the end of a training step: of the next one, or of number ``completed``, counted from 1."""
    @property
    def source(self) -> Literal["preloaded", "packaged", "disabled", "missing"]:
        """Where the marks go."""
