"""faulthandler ends a process whose import takes too long. It calls _exit in its own thread, while the import holds
the loader's lock. Takes libsleeps.so. Ends with exit code 1."""

import ctypes
import faulthandler
import os
import sys

faulthandler.dump_traceback_later(0.3, exit=True, file=open(os.devnull, "w"))
print("importing", flush=True)
ctypes.CDLL(sys.argv[1])
