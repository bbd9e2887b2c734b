"""Prints when the screen of a tmux session first reports a problem: named.py SESSION STARTED SECONDS"""

import pathlib
import re
import subprocess
import sys
import time

session, started, within = sys.argv[1], float(pathlib.Path(sys.argv[2]).read_text()), float(sys.argv[3])
while time.time() - started < within:
    screen = subprocess.run(["tmux", "capture-pane", "-p", "-t", session], capture_output=True, text=True).stdout
    found = [line.strip() for line in screen.splitlines() if re.search(r"STANDS|▲|✖", line)]
    if found:
        print(f"{session}: on the screen {time.time() - started:.1f} s after it began: {found[0]}", flush=True)
        break
    time.sleep(0.2)
else:
    print(f"{session}: nothing on the screen in {within:.0f} s", flush=True)
