"""How long a launch into a full queue blocks the thread, by the program's clock and by xpu-top's figures.

    xpu-top run --job held -- python3 held.py XPU_TOP

Each kind of kernel is launched for three seconds without a wait. First the time of a launch into an empty queue is
measured; what a launch takes beyond it, once the queue is full, counts as blocked. Prints a line of JSON per kind.
"""

import json
import subprocess
import sys
import time

import torch

XPU_TOP, LAUNCHES, SECONDS = sys.argv[1], 400, 3.0

small = torch.ones(1 << 20, device="cuda")
large = torch.ones(1 << 25, device="cuda")
one = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
huge = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)


def blocked():
    """The blocked seconds by kind of call, as xpu-top counts them, once its digest has arrived."""
    time.sleep(2.5)
    said = subprocess.run([XPU_TOP, "status", "--json", "--rank", "0"], capture_output=True, text=True, check=False)
    ranks = json.loads(said.stdout)["ranks"]
    return {call["call"]: call["waited_s"] for call in ranks[0]["activity"]["blocked"]}


def mixed():
    torch.mm(one, one)
    small.mul_(1.0)
    small.add_(0.0)


def train():
    torch.mm(huge, huge)
    for _ in range(6):
        small.mul_(1.0)


KINDS = {
    "4 us": lambda: small.mul_(1.0),
    "60 us": lambda: large.mul_(1.0),
    "GEMMs of 30 us": lambda: torch.mm(one, one),
    "GEMMs of 1.5 ms": lambda: torch.mm(huge, huge),
    "GEMMs and small ones": mixed,
    "large GEMMs and small ones": train,
}


def launched(launch, until):
    """Launches until a number is reached, or for a time. Returns the number of launches and the seconds."""
    number, began = 0, time.perf_counter()
    while number < until if isinstance(until, int) else time.perf_counter() - began < until:
        launch()
        number += 1
    return number, time.perf_counter() - began


for name, launch in KINDS.items():
    launched(launch, 50)
    torch.cuda.synchronize()
    _, free = launched(launch, 100)
    torch.cuda.synchronize()
    before = blocked()
    number, took = launched(launch, SECONDS)
    held = took - number * free / 100
    longest = []
    for _ in range(LAUNCHES):
        began = time.perf_counter()
        launch()
        longest.append((time.perf_counter() - began) * 1e6)
    longest.sort()
    torch.cuda.synchronize()
    after = blocked()
    counted = {call: round(after[call] - before.get(call, 0.0), 3) for call in after}
    print(json.dumps({
        "kind": name, "launches": number, "took_s": round(took, 3), "held_s": round(held, 3), "counted_s": counted,
        "us": [round(longest[at]) for at in (LAUNCHES // 100, LAUNCHES // 2, LAUNCHES * 9 // 10, LAUNCHES - 1)],
    }), flush=True)  # fmt: skip
