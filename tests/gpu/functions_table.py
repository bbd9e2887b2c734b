"""What one capture reports of rank 1, in which a function is slow (slow.py). `report` compares functions of all
ranks.

    python3 functions_table.py PROGRAMS OUT [--base-port PORT] [FAULT...]

Runs one job after the other. The capture of 20 steps begins 4 s after the fault. A row has the step time before and
with the fault, by the program's own clock, and the functions in the report. Exit code 1: rank 1 was not named, or
something else came first.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
# For each fault: a text in the name of its function, and the width of the model. With 4096 the GPUs limit the job.
FAULTS = {
    "python": ("parse_records", "1024"),
    "gc": ("garbage", "1024"),
    "compute": ("", "1024"),
    "copies": ("HostToDevice", "1024"),
    "neighbour": ("", "4096"),
    "none": (None, "1024"),
}

arguments = argparse.ArgumentParser()
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--base-port", type=int, default=24000, help="each job has the 16 ports after those of the last")
arguments.add_argument("faults", nargs="*")


def step_ms(path, since, until):
    steps = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
    within = [(at, step) for at, step in steps if since <= at <= until]
    return (within[-1][0] - within[0][0]) / (within[-1][1] - within[0][1]) * 1e3 if len(within) > 1 else None


def watch(given, number, fault):
    expected, width = FAULTS[fault]
    place = pathlib.Path(tempfile.mkdtemp(prefix="functions-"))
    host = ["--hosts", "127.0.0.1", "--base-port", str(given.base_port + 16 * number)]
    environment = {**os.environ, "XPU_TOP_BASE_PORT": host[-1], "XPU_TOP_RUNTIME_DIR": str(place / "run"),
                   "HOME": str(place), "PYTHONUNBUFFERED": "1", "WIDTH": width}  # fmt: skip
    own = place / "own"
    command = [given.programs / "xpu-top", "run", "--job", "functions", "--", sys.executable, "-m",
               "torch.distributed.run", "--nproc_per_node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint",
               "localhost:0", HERE / "share.py", HERE / "slow.py", fault, "12", "40", own]  # fmt: skip
    with (given.out / f"{number}-{fault}.log").open("w") as output:
        job = subprocess.Popen(list(map(str, command)), env=environment, cwd=HERE, stdout=output, stderr=output)
    began, until = place / "own.began", time.monotonic() + 120
    while not (began.exists() and began.read_text()) and job.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    try:
        if not began.exists():
            return False, f"| {fault} | did not run | | |"
        at = float(began.read_text())
        time.sleep(max(at + 4 - time.time(), 0))
        before, wrong = step_ms(place / "own.1", at - 8, at), step_ms(place / "own.1", at + 1, time.time())
        file = given.out / f"{number}-{fault}.bin"
        done = subprocess.run(
            [given.programs / "xpu-top", "capture", "--steps", "20", "--kernels", "--python", "-o", file, *host,
             "--wait", "60", "--no-watch"],
            env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        report = [given.programs / "xpu-top", "report", file]
        said = subprocess.run([*report, "--json"], env=environment, capture_output=True, text=True, check=False).stdout
        (given.out / f"{number}-{fault}.json").write_text(said)
        text = subprocess.run(report, env=environment, capture_output=True, text=True, check=False).stdout
        (given.out / f"{number}-{fault}.txt").write_text(text + done.stdout + done.stderr)
        functions = json.loads(said or "{}").get("behaviour", {}).get("abnormal", [])
        peers = [one for one in functions if one["why"] == "unlike_peers"]
        names = [f"{one['why']} {one['ranks']} {one['name']}: {one['cost_ns'] / 1e6:.1f} ms" for one in functions[:4]]
        if expected is None:
            right = not peers
        else:
            right = bool(peers) and peers[0]["ranks"] == [1] and any(expected in one["name"] for one in peers[:2])
        cost = f"{before:.1f} to {wrong:.1f}" if before and wrong else "?"
        return right, f"| {fault} | {cost} ms | {'right' if right else 'WRONG'} | {'; '.join(names) or 'nothing'} |"
    finally:
        job.kill()
        subprocess.run(["pkill", "-KILL", "-f", str(own)], check=False)


def main():
    given = arguments.parse_intermixed_args()
    given.programs, given.out = given.programs.resolve(), given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    print("| fault | own step | | said of functions |\n| --- | --- | --- | --- |", flush=True)
    rows = []
    for number, fault in enumerate(given.faults or FAULTS):
        rows.append(watch(given, number, fault))
        print(rows[-1][1], flush=True)
    sys.exit(not all(right for right, _ in rows))


main()
