"""Requests the kernels on the GPUs of a hung job with the key of the screen, and saves the screen that shows them.

    press.py OUT.svg WORD COMMAND...

Starts COMMAND (xpu-top) in a terminal of 132 x 40, and presses 6, U and U. Exits with 1 if the screen does not show
WORD within 60 s.
"""

import fcntl
import os
import pathlib
import pty
import struct
import sys
import tempfile
import termios
import threading
import time

out, word, *command = sys.argv[1:]
folder = pathlib.Path(tempfile.mkdtemp())
child, screen = pty.fork()
if child == 0:
    os.chdir(folder)
    os.environ.update(TERM="xterm-256color", COLORTERM="truecolor")
    os.execvp(command[0], command)
fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 132, 0, 0))


def drain():
    try:
        while os.read(screen, 1 << 16):
            pass
    except OSError:
        pass


def press(key, seconds):
    os.write(screen, key.encode())
    time.sleep(seconds)


threading.Thread(target=drain, daemon=True).start()
time.sleep(4)
press("6", 3)
pressed = time.monotonic()
press("U", 1.5)
press("U", 0.5)
shown = None
while shown is None and time.monotonic() < pressed + 60:
    press("S", 0.5)
    shown = next((svg for svg in sorted(folder.glob("*.svg")) if word in svg.read_text()), None)
taken = time.monotonic() - pressed
pathlib.Path(out).write_text((shown or max(folder.glob("*.svg"))).read_text())
press("q", 0.5)
print(f"{word} is {'on the screen' if shown else 'not on the screen'} {taken:.1f} s after the key")
sys.exit(0 if shown else 1)
