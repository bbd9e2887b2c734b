"""faulthandler ends a process that has been importing for too long, by _exit in a thread of its own, while the import
holds the loader's lock. Takes libsleeps.so. Ends with exit code 1."""

import ctypes
import faulthandler
import os
import sys

faulthandler.dump_traceback_later(0.3, exit=True, file=open(os.devnull, "w"))
print("importing", flush=True)
ctypes.CDLL(sys.argv[1])
