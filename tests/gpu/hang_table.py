"""Hangs really made by rank 1 of two (hangs.py), and what `status` says 18 s later, which had never watched before.

    python3 hang_table.py PROGRAMS OUT [--at-once N] [FAULT...]

Ranks share one GPU where there is one.
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
FAULTS = ["none", "extra", "size", "dtype", "order", "kernel", "swallowed", "lock", "send"]

arguments = argparse.ArgumentParser()
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--at-once", type=int, default=1)
arguments.add_argument("faults", nargs="*")


def watch(given, number, fault):
    place = pathlib.Path(tempfile.mkdtemp(prefix="hang-"))
    base, own = 23000 + 16 * number, place / "own"
    environment = {**os.environ, "XPU_TOP_BASE_PORT": str(base), "XPU_TOP_RUNTIME_DIR": str(place / "run"),
                   "HOME": str(place), "PYTHONUNBUFFERED": "1"}  # fmt: skip
    command = [given.programs / "xpu-top", "run", "--job", "hang", "--", sys.executable, "-m", "torch.distributed.run",
               "--nproc_per_node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", HERE / "share.py",
               HERE / "hangs.py", fault, "15", own]  # fmt: skip
    with (given.out / f"{number}-{fault}.log").open("w") as output:
        job = subprocess.Popen(list(map(str, command)), env=environment, cwd=HERE, stdout=output, stderr=output)
    began, until = place / "own.began", time.monotonic() + 120
    while not (began.exists() and began.read_text()) and job.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    if not began.exists():
        job.kill()
        return f"| {fault} | did not run | |"
    time.sleep(max(float(began.read_text()) + 18 - time.time(), 0))
    where = ["--hosts", "127.0.0.1", "--base-port", str(base)]
    said = {}
    for name, words in {"status": ["status", "--json"], "collectives": ["collectives"], "stacks": ["stacks"]}.items():
        ask = [str(given.programs / "xpu-top"), *words, *where]
        said[name] = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=60, check=False)
        (given.out / f"{number}-{fault}.{name}").write_text(said[name].stdout + said[name].stderr)
    findings = json.loads(said["status"].stdout or "{}").get("findings", [])
    told = [f"{one['kind']} {one['class']} {one['ranks']}: {one['evidence']}" for one in findings]
    job.kill()
    subprocess.run(["pkill", "-KILL", "-f", str(own)], check=False)
    return f"| {fault} | {said['status'].returncode} | {'; '.join(told) or 'nothing'} |"


def main():
    given = arguments.parse_intermixed_args()
    given.programs, given.out = given.programs.resolve(), given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    print("| fault | exit code | told |\n| --- | --- | --- |", flush=True)
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        for row in pool.map(lambda pair: watch(given, *pair), enumerate(given.faults or FAULTS)):
            print(row, flush=True)


main()
