"""Does torch.profiler crash in a program that was traced from outside before? Runs without xpu-top.

    python3 kineto_then_profiler.py

A daemon as dynolog's (tests/kineto/dynolog.py) requests a trace of two steps. After it, the program uses torch.profiler
ten times. In PyTorch 2.11 and older, the thread of Kineto that served the daemon also handles the trace of
torch.profiler, and may end the process with SIGSEGV (kineto 37fada9a, 2026-03-24, corrects this). Prints how the
program ended, with a trace from outside before and without one.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

PROGRAM = """
import os, sys, time, torch
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(20)]).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x = torch.randn(8, 8, device=device)
def train(seconds):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        model(x).square().mean().backward()
        optimizer.step(); optimizer.zero_grad()
train(12)
print("traced from outside:", any(name.endswith(".json") for name in os.listdir(sys.argv[1])), flush=True)
for number in range(10):
    with torch.profiler.profile():
        train(0.7)
    print("torch.profiler", number, flush=True)
"""


def ends(asks):
    folder = tempfile.mkdtemp(prefix="kineto-")
    environment = {**os.environ, "KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": folder}
    daemon = subprocess.Popen(
        [sys.executable, HERE.parent / "kineto/dynolog.py", folder],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    program = subprocess.Popen([sys.executable, "-c", PROGRAM, folder], env=environment)
    if asks:
        time.sleep(8)
        daemon.stdin.write(f"{folder}/trace.json\n")
        daemon.stdin.flush()
    code = program.wait()
    daemon.stdin.close()
    daemon.wait()
    return code


for asks in (True, True, False):
    print("with" if asks else "without", "a trace from outside: exit code", ends(asks), flush=True)
