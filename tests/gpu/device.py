"""xpu-top's figures of each rank's GPU, compared with nvidia-smi's at the same moment, and the collector's cost.

device.py JOB [ROUNDS]
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

# xpu-top's name, nvidia-smi's name, and how many of xpu-top's units are one of nvidia-smi's.
FIGURES = [
    ("gpu_pct", "utilization.gpu", 1),
    ("sm_mhz", "clocks.sm", 1),
    ("sm_max_mhz", "clocks.max.sm", 1),
    ("memory_mhz", "clocks.mem", 1),
    ("power_w", "power.draw.average", 1),
    ("power_limit_w", "enforced.power.limit", 1),
    ("temperature_c", "temperature.gpu", 1),
    ("memory_used_bytes", "memory.used", 1 << 20),
    ("memory_total_bytes", "memory.total", 1 << 20),
    ("ecc_corrected", "ecc.errors.corrected.volatile.total", 1),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total", 1),
    ("throttle", "clocks_event_reasons.active", None),
]


def status(job):
    said = subprocess.run(["xpu-top", "status", "--now", "--json", "--job", job], capture_output=True, text=True).stdout
    return {rank["rank"]: rank["device"] for rank in json.loads(said)["ranks"]}


def nvidia_smi():
    query = ",".join(["uuid", *(theirs for _, theirs, _ in FIGURES)])
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits"]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = [[cell.strip() for cell in line.split(",")] for line in said.splitlines()]
    return {row[0].partition("-")[2]: row[1:] for row in rows}


def collector():
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "comm").read_text().strip() == "xpu-collector":
                yield process
        except OSError:
            continue


def cpu_seconds(process):
    """CPU seconds by thread name."""
    seconds = {}
    for task in (process / "task").iterdir():
        name, fields = (task / "comm").read_text().strip(), (task / "stat").read_text().rsplit(")", 1)[1].split()
        seconds[name] = seconds.get(name, 0) + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def shown(ours, theirs, unit):
    if ours is None or unit is None or not theirs.replace(".", "", 1).isdigit():
        return f"{ours!s:>22} {theirs:>22}"
    theirs = float(theirs)
    return f"{ours / unit:>22.1f} {theirs:>22.1f}   {ours / unit - theirs:+.1f}"


def main(job, rounds=3):
    before, begun = {process: cpu_seconds(process) for process in collector()}, time.monotonic()
    for _ in range(rounds):
        time.sleep(4)
        ours, theirs = status(job), nvidia_smi()
        for rank, device in ours.items():
            if device is None:
                print(f"rank {rank}: not known")
                continue
            print(f"rank {rank} GPU-{device['uuid']} read {device['age_s']:.2f} s before it was said")
            print(f"  {'':20} {'xpu-top':>22} {'nvidia-smi':>22}")
            for (name, _, unit), said in zip(FIGURES, theirs.get(device["uuid"], []), strict=False):
                print(f"  {name:20} {shown(device[name], said, unit)}")
            known = {name: device[name] for name in ("memory_max_mhz", "nvlink_errors", "xids", "last_xid")}
            print(f"  only ours: {known}")
    passed = time.monotonic() - begun
    for process, start in before.items():
        spent = {name: end - start.get(name, 0) for name, end in cpu_seconds(process).items()}
        shares = ", ".join(f"{name} {100 * seconds / passed:.2f} %" for name, seconds in spent.items())
        print(f"collector {process.name}: {shares} of a core over {passed:.0f} s")


main(sys.argv[1], *map(int, sys.argv[2:]))
