"""The program's own code makes the text of an uncaught exception. That code must run only once, when Python prints the
text. Ends with exit code 1."""

import sys
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "hook"))
import gpu  # noqa: E402


class OwnText(Exception):
    def __str__(self):
        print("asked for its text", flush=True)
        return "a text of its own"


gpu.ok(gpu.gemm_ex(256, 256, 256))
gpu.sync()
raise OwnText
