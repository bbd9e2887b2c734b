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


def saved(text, key="S"):
    """A saved screen that has this text; None if none has it within 60 s."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        press(key, 0.5)
        found = next((svg for svg in sorted(folder.glob("*.svg")) if text in svg.read_text()), None)
        if found:
            return found
    return None


threading.Thread(target=drain, daemon=True).start()
saved("Stacks", "6S")
pressed = time.monotonic()
# The second press confirms, and counts only a second after the first.
press("U", 1.5)
press("U", 0.5)
shown = saved(word)
taken = time.monotonic() - pressed
pathlib.Path(out).write_text((shown or max(folder.glob("*.svg"))).read_text())
press("q", 0.5)
print(f"{word} is {'on the screen' if shown else 'not on the screen'} {taken:.1f} s after the key")
sys.exit(0 if shown else 1)
