"""Real faults on rank 1 of two or more (slow.py), and what a `status` that has not watched before reports of them.

    python3 slow_table.py PROGRAMS OUT [--at-once N] [--ranks N] [--base-port PORT] [FAULT...]

The status is read 20 s after the fault began. Own cost: the mean step of rank 1 by its own clock from 4 s after the
fault on, minus the mean over the 10 s before it. Ranks share one GPU if there is only one.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FAULTS = ["none", "loader", "gil", "checkpoint", "copies", "item", "gc", "none", "compute",
          "neighbour", "batch", "cache", "core", "stopped", "log", "kernels",
          "pinned", "lock", "norms", "anomaly", "profiler"]  # fmt: skip

arguments = argparse.ArgumentParser()
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--at-once", type=int, default=1)
arguments.add_argument("--ranks", type=int, default=2)
arguments.add_argument("--base-port", type=int, default=21000, help="each job has the 16 ports after those of the last")
arguments.add_argument("faults", nargs="*")


def mean(path, since, until, period=1):
    """The mean step in milliseconds, over whole periods of this many steps. Includes the whole step that runs at
    `until`, which may be long."""
    times = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
    within = [(at, step) for at, step in times if since <= at <= until]
    within += [(at, step) for at, step in times if at > until][:1]
    while len(within) > 1 and (within[-1][1] - within[0][1]) % period:
        within.pop(0)
    return (within[-1][0] - within[0][0]) / (within[-1][1] - within[0][1]) * 1e3 if len(within) > 1 else None


def watch(given, number, fault):
    place = pathlib.Path(tempfile.mkdtemp(prefix="slow-"))
    base = given.base_port + 16 * number
    environment = {**os.environ, "XPU_TOP_BASE_PORT": str(base), "XPU_TOP_RUNTIME_DIR": str(place / "run"),
                   "HOME": str(place), "PYTHONUNBUFFERED": "1"}  # fmt: skip
    own = place / "own"
    command = [given.programs / "xpu-top", "run", "--job", "slow", "--", sys.executable, "-m", "torch.distributed.run",
               "--nproc_per_node", str(given.ranks), "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
               HERE / "share.py", HERE / "slow.py", fault, "15", "45", own]  # fmt: skip
    with (given.out / f"{number}-{fault}.log").open("w") as output:
        job = subprocess.Popen(list(map(str, command)), env=environment, cwd=HERE, stdout=output, stderr=output)
    began = place / "own.began"
    until = time.monotonic() + 120
    while not (began.exists() and began.read_text()) and job.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    if job.poll() is not None or not began.exists():
        job.kill()
        return f"| {fault} | did not run | | | |"
    at = float(began.read_text())
    record = [given.programs / "xpu-top", "record", "--hosts", "127.0.0.1", "--base-port", str(base), "--for", "20s"]
    recording = subprocess.Popen([*map(str, record), "-o", str(given.out / f"{number}-{fault}.xpurec")],
                                 env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    time.sleep(max(at + 20 - time.time(), 0))
    ask = [given.programs / "xpu-top", "status", "--json", "--hosts", "127.0.0.1", "--base-port", str(base)]
    said = subprocess.run(list(map(str, ask)), env=environment, capture_output=True, text=True, check=False)
    now = time.time()
    (given.out / f"{number}-{fault}.json").write_text(said.stdout)
    reported = [
        f"{finding['kind']} {finding['class']} {finding['ranks']} "
        f"cost {finding.get('cost_ms_per_step')} ms: {finding['evidence']}"
        for finding in json.loads(said.stdout or "{}").get("findings", [])
    ]
    recording.wait(timeout=30)
    period = 50 if fault == "checkpoint" else 1
    before, after = mean(place / "own.1", at - 10, at), mean(place / "own.1", at + 4, now, period)
    job.kill()
    subprocess.run(["pkill", "-KILL", "-f", str(own)], check=False)
    own_cost = f"{before:.1f} to {after:.1f} ms: {after - before:+.1f}" if before and after else "?"
    return f"| {fault} | {own_cost} | {said.returncode} | {'; '.join(reported) or 'nothing'} |"


def main():
    given = arguments.parse_intermixed_args()
    given.programs, given.out = given.programs.resolve(), given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    print("| fault | own step before and with it | exit code | reported |\n| --- | --- | --- | --- |", flush=True)
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        faults = given.faults or FAULTS
        for row in pool.map(lambda pair: watch(given, *pair), enumerate(faults)):
            print(row, flush=True)


main()
