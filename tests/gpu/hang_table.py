"""The eleven hangs on real GPUs, in jobs of two ranks: rank 1 causes each (hangs.py). Shows what is reported, and after
how many seconds.

    python3 hang_table.py PROGRAMS OUT [--at-once 5] [--rounds 1] [--patience 25] [--base-port PORT] [FAULT...]

PROGRAMS has xpu-top, xpu-collector and libxpu_hook.so; OUT gets each job's output and last status. Each job has its
own collector. Jobs at the same time share the two GPUs in time slices, and the driver's figures of a GPU are then the
sum of all of them. A state that only the driver shows therefore counts only with `--at-once 1`. One round
takes some 100 s with `--at-once 5`. On a machine with one GPU the ranks share it. Exit code 1: a report was missing
or wrong.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent

# The class, a text that names the place (in the evidence, or in the stack of rank 1), and the states that rank 1's
# GPU may be in.
EXPECTED = {
    "extra": ("mismatch", "log_metrics", ("begun", "still", "launched")),
    # The other rank may wait in its wrapper of the call, and its small all-reduce may end.
    "async": ("mismatch", "begin_logging", ("begun", "still", "launched", "done")),
    # A small all-reduce may complete on the rank with the smaller size.
    "size": ("mismatch", "log_metrics", ("begun", "still", "launched", "done")),
    "dtype": ("mismatch", "log_metrics", ("begun", "still", "launched", "done")),
    "order": ("deadlock", "validate", ("not_called", "begun", "still", "launched")),
    "kernel": ("not_started", "hangs.py:", ("behind",)),
    "swallowed": ("mismatch", "hangs.py:", ("begun", "still", "launched")),
    "lock": ("not_entered", "take_twice", ("not_called",)),
    "loader": ("not_entered", "next_batch", ("not_called",)),
    # The first send to a rank waits within the call for the connection.
    "send": ("unmatched", "log_metrics", ("not_launched", "begun", "still", "launched")),
    "left": ("not_entered", "it has ended", ("not_called",)),
}
# Jobs without a hang, and the seconds in which none may be reported.
HEALTHY = {"none": 25, "long": 140}

arguments = argparse.ArgumentParser()
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--at-once", type=int, default=5)
arguments.add_argument("--rounds", type=int, default=1)
arguments.add_argument("--healthy", type=float, default=6, help="seconds of training before the hang")
arguments.add_argument("--patience", type=float, default=25, help="seconds that a report may take")
arguments.add_argument("--base-port", type=int, default=23000, help="each job has the 16 ports after those of the last")
arguments.add_argument("faults", nargs="*", help="of " + ", ".join([*EXPECTED, *HEALTHY]))


def judged(fault, status):
    """Judges the report of rank 1: whether culprit, place and GPU state are right, and the evidence."""
    found = [one for one in status.get("findings", []) if one["kind"] in ("hang", "exited")]
    if not found:
        return None
    finding, (of_class, place, states) = found[0], EXPECTED[fault]
    folded = (status.get("stacks") or {}).get("folded", "")
    on_stack = [
        line for line in folded.splitlines() if place in line and (fault == "kernel" or "@1|" in line or "@1;" in line)
    ]
    groups = [group for group in finding.get("gpus", []) if 1 in group["ranks"]]
    state = groups[0]["state"] if groups else None
    return {
        "culprit": finding["class"] == of_class and finding["ranks"] == [1],
        "place": place in finding["evidence"] or bool(on_stack),
        "gpu": state in states,
        "state": state or "-",
        "said": f"{finding['kind']} {finding['class']} {finding['ranks']}: {finding['evidence']}",
    }


def watch(given, number, fault):
    place = pathlib.Path(tempfile.mkdtemp(prefix="hang-"))
    base, own = given.base_port + 16 * number, place / "own"
    environment = {**os.environ, "XPU_TOP_BASE_PORT": str(base), "XPU_TOP_RUNTIME_DIR": str(place / "run"),
                   "HOME": str(place), "PYTHONUNBUFFERED": "1", "NCCL_RAS_ADDR": f"127.0.0.1:{base + 8}"}  # fmt: skip
    command = [given.programs / "xpu-top", "run", "--job", f"hang-{fault}", "--", sys.executable, "-m",
               "torch.distributed.run", "--nproc_per_node", "2", "--rdzv-backend", "c10d",
               "--rdzv-endpoint", "localhost:0", HERE / "share.py", HERE / "hangs.py",
               fault, str(given.healthy), own]  # fmt: skip
    with (given.out / f"{number}-{fault}.log").open("w") as output:
        job = subprocess.Popen(
            list(map(str, command)), env=environment, cwd=HERE, stdout=output, stderr=output, start_new_session=True
        )
    try:
        return fault, reported(given, number, fault, job, environment, base, pathlib.Path(f"{own}.began"))
    finally:
        # The launcher starts its ranks in sessions of their own.
        ranks = pathlib.Path(f"{own}.pids")
        for process in ranks.read_text().split() if ranks.exists() else []:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(process), signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(job.pid, signal.SIGTERM)
        for log in (place / "run").rglob("collector-*.log"):
            shutil.copy(log, given.out / f"{number}-{fault}.collector.log")


def reported(given, number, fault, job, environment, base, began):
    until = time.monotonic() + 120
    while not (began.exists() and began.read_text()) and job.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    if not (began.exists() and began.read_text()):
        return None, "it did not run: see its log"
    at = float(began.read_text())
    host = ["--hosts", "127.0.0.1", "--base-port", str(base)]
    ask = [str(given.programs / "xpu-top"), "status", "--json", "--now", *host]
    seconds, last = None, None
    patience = HEALTHY.get(fault, given.patience)
    while time.time() < at + patience and job.poll() is None:
        said = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=60, check=False).stdout
        status = json.loads(said or "{}")
        if fault in HEALTHY:
            found = [one for one in status.get("findings", []) if one["kind"] in ("hang", "exited")]
            (given.out / f"{number}-{fault}.json").write_text(said)
            if found:
                return time.time() - at, {"said": found[0]["evidence"], "right": False}
            seen = bool(status.get("ranks"))
            last = {"said": "nothing" if seen else "no ranks: the collector is gone", "right": seen}
        else:
            last = judged(fault, status)
        (given.out / f"{number}-{fault}.json").write_text(said)
        if last and seconds is None:
            seconds = time.time() - at
        # Records and stacks are read after the first report.
        if last and all(last.get(part) for part in ("culprit", "place", "gpu")):
            break
        time.sleep(0.3)
    return seconds, last or "nothing was said"


def main():
    given = arguments.parse_intermixed_args()
    given.programs, given.out = given.programs.resolve(), given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    faults, begun, right = (given.faults or list(EXPECTED)) * given.rounds, time.monotonic(), True
    print("| rank 1 | seconds | culprit | place | GPU of rank 1 | said |\n|---|---|---|---|---|---|", flush=True)
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        for fault, (seconds, said) in pool.map(lambda pair: watch(given, *pair), enumerate(faults)):
            if isinstance(said, str):
                right = False
                print(f"| {fault} | - | - | - | - | {said} |", flush=True)
                continue
            if fault in HEALTHY:
                right &= said["right"]
                print(f"| {fault} | {seconds or 0:.1f} | - | - | - | {said['said']} |", flush=True)
                continue
            words = ["right" if said[part] else "WRONG" for part in ("culprit", "place", "gpu")]
            right &= "WRONG" not in words and seconds <= 15
            culprit, place, gpu = words
            print(
                f"| {fault} | {seconds:.1f} | {culprit} | {place} | {gpu}: {said['state']} | {said['said']} |",
                flush=True,
            )
    print(f"{len(faults)} hangs in {time.monotonic() - begun:.0f} s", flush=True)
    sys.exit(not right)


main()
