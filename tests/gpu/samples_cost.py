"""What sampled Python stacks cost a job: steps during `xpu-top capture --for`, without samples and with each kind.

    python3 samples_cost.py PROGRAMS OUT [--rounds 3] [--seconds 4] [--base-port PORT]

One DDP job on two GPUs (slow.py, healthy, limited by its hosts, so that a slower host shows in each step). Windows
of each kind take turns. Prints the median of the windows' mean steps, by the clock of rank 0's program, and the
sampler's own figures.
"""

import argparse
import collections
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
KINDS = ["none", "capture", "--python=100", "--python=500", "--python=1000", "--python=100 --native"]

arguments = argparse.ArgumentParser()
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--rounds", type=int, default=3)
arguments.add_argument("--seconds", type=float, default=4)
arguments.add_argument("--base-port", type=int, default=25000)


def mean_step_ms(path, since, until):
    steps = [tuple(map(float, line.split())) for line in path.read_text().splitlines()]
    within = [(at, step) for at, step in steps if since <= at <= until]
    return (within[-1][0] - within[0][0]) / (within[-1][1] - within[0][1]) * 1e3 if len(within) > 1 else None


def main():
    given = arguments.parse_args()
    programs, out = given.programs.resolve(), given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    place = pathlib.Path(tempfile.mkdtemp(prefix="samples-"))
    host = ["--hosts", "127.0.0.1", "--base-port", str(given.base_port)]
    environment = {**os.environ, "XPU_TOP_BASE_PORT": host[-1], "XPU_TOP_RUNTIME_DIR": str(place / "run"),
                   "HOME": str(place), "PYTHONUNBUFFERED": "1"}  # fmt: skip
    own = place / "own"
    command = [programs / "xpu-top", "run", "--job", "samples", "--", sys.executable, "-m", "torch.distributed.run",
               "--nproc_per_node", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0",
               HERE / "slow.py", "none", "5", "900", own]  # fmt: skip
    with (out / "samples.log").open("w") as output:
        job = subprocess.Popen(list(map(str, command)), env=environment, cwd=HERE, stdout=output, stderr=output)
    began = place / "own.began"
    try:
        until = time.monotonic() + 120
        while not began.exists() and job.poll() is None and time.monotonic() < until:
            time.sleep(0.1)
        took, sampler = collections.defaultdict(list), {}
        for number in range(given.rounds):
            for kind in KINDS:
                if kind == "none":
                    since = time.time()
                    time.sleep(given.seconds)
                    took[kind].append(mean_step_ms(place / "own.0", since, time.time()))
                    continue
                options = [] if kind == "capture" else kind.split()
                file = out / f"{number}{''.join(options) or kind}.bin"
                asked = [programs / "xpu-top", "capture", "--for", f"{given.seconds}s", *options, "-o", file, *host]
                said = subprocess.run(
                    list(map(str, asked)), env=environment, capture_output=True, text=True, check=False
                )
                report = subprocess.run(
                    [str(programs / "xpu-top"), "report", "--json", str(file)],
                    env=environment, capture_output=True, text=True, check=False,
                )  # fmt: skip
                try:
                    read = json.loads(report.stdout)
                    since = read["window"]["begin"] / 1e9
                except (json.JSONDecodeError, KeyError, TypeError):
                    print(kind, "failed:", said.stderr[-500:], report.stderr[-500:], flush=True)
                    continue
                took[kind].append(mean_step_ms(place / "own.0", since, since + read["window"]["length_ns"] / 1e9))
                sampler[kind] = read.get("python")
        print("| samples | mean step, ms, median of the windows | each window |\n|---|---|---|")
        for kind in KINDS:
            times = [one for one in took[kind] if one]
            each = ", ".join(f"{one:.2f}" for one in times)
            print(f"| {kind} | {statistics.median(times) if times else float('nan'):.2f} | {each} |")
        (out / "samples.json").write_text(json.dumps(sampler))
    finally:
        job.kill()
        subprocess.run(["pkill", "-KILL", "-f", str(own)], check=False)


main()
