"""Compares xpu-top's figures with those that programs of several frameworks measure themselves (own_rates.py).

    python3 tests/gpu/own_rates_table.py PROGRAMS OUT [--seconds S] [KIND...]

PROGRAMS has xpu-top, xpu-collector and libxpu_hook.so. Needs two GPUs. stdout gets a row per rank or GPU, with each
figure as xpu-top's / the program's: the time per step, achieved TFLOPS (FLOPs over elapsed time), TFLOPS of GEMMs
while they run, bus GB/s by nccl-tests' formula, and the numbers of GEMMs and collectives between two rests. A rate is
wrong if it is off by more than 3 %, a count if it is not equal. Each program also runs without xpu-top; the result
must be the same, bit for bit. Exits with 1 if something is wrong.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
# Processes, and the names of the ranks that status shows.
KINDS = {
    "plain": (2, [0, 1]),
    "torch_compile": (2, [0, 1]),
    "nccl_ctypes": (2, [0, 1]),
    "triton": (2, [0, 1]),
    "cupy": (2, [0, 1]),
    "jax_processes": (2, [0, 1]),
    "jax_devices": (1, ["0.0", "0.1"]),
    "flax": (1, ["0.0", "0.1"]),
}
TOLERANCE = 0.03

arguments = argparse.ArgumentParser(prog="own_rates_table.py")
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--seconds", type=float, default=42)
arguments.add_argument("--base-port", type=int, default=27000)
arguments.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)}; all without one")


def states(path):
    lines = path.read_text().splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]


class Job:
    def __init__(self, given, kind, number):
        self.kind, (self.processes, self.ranks) = kind, KINDS[kind]
        self.place = (given.out / kind).resolve()
        self.place.mkdir(parents=True, exist_ok=True)
        self.programs, self.port = given.programs.resolve(), given.base_port + 40 * number
        self.environment = {
            **os.environ,
            "XPU_TOP_BASE_PORT": str(self.port),
            "XPU_TOP_RUNTIME_DIR": str(self.place / "run"),
            "HOME": str(self.place),
            "PYTHONUNBUFFERED": "1",
            "XPU_TOP_KERNELS": "own_matmul",
        }
        self.seconds = given.seconds

    def start(self, name, prefix, **more):
        script = [str(HERE / "own_rates.py"), self.kind, str(self.place / name), str(self.seconds)]
        if self.processes > 1:
            launch = ["-m", "torch.distributed.run", "--nproc_per_node", str(self.processes)]
            script = [*launch, "--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", *script]
        output = (self.place / f"{name}.txt").open("w")
        return subprocess.Popen([*prefix, sys.executable, *script], env={**self.environment, **more},
                                stdout=output, stderr=output, stdin=subprocess.DEVNULL)  # fmt: skip

    def status(self, *more):
        ask = [str(self.programs / "xpu-top"), "status", "--json", "--now", "--hosts", "127.0.0.1"]
        command = [*ask, "--base-port", str(self.port), *more]
        said = subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        return json.loads(said.stdout or "{}")

    def rows(self, *more):
        return {row["rank"]: row for row in self.status(*more).get("ranks", [])}

    def counts(self):
        """GEMMs, collectives and requested kernels so far, of each rank."""
        found = {}
        for rank in self.ranks:
            row = self.rows("--rank", str(rank), "--wait", "4").get(rank, {})
            named = (row.get("activity") or {}).get("kernels") or []
            found[rank] = {
                "gemms": sum(gemm["count"] for gemm in row.get("gemms", [])),
                "collectives": sum(one["count"] for one in row.get("collectives", [])),
                "kernels": sum(one["launches"] for one in named),
                "kernel_us": next((one["us_p50"] for one in named if one["us_p50"]), None),
            }
        (self.place / f"counts-{time.monotonic():.0f}.json").write_text(json.dumps(row))
        return found

    def own(self):
        return [states(self.place / f"own.{number}") for number in range(self.processes)]

    def wait(self, job, wanted):
        until = time.monotonic() + 150
        while time.monotonic() < until and job.poll() is None:
            if all(wanted(lines) for lines in self.own()):
                return
            yield
        raise RuntimeError(f"{self.kind}: it ended, or took too long: see {self.place}")

    def run(self):
        job = self.start("own", [str(self.programs / "xpu-top"), "run", "--job", self.kind, "--"])
        try:
            for _ in self.wait(job, lambda lines: lines and lines[0]["state"] == "rests"):
                time.sleep(0.1)
            time.sleep(2)
            before = self.counts()
            last = {}
            for _ in self.wait(job, lambda lines: lines[-1]["state"] == "rests" and len(lines) > 1):
                rows = self.rows()
                if all(lines[-1]["state"] == "runs" for lines in self.own()):
                    last = rows
                time.sleep(0.5)
            time.sleep(2)
            after = self.counts()
            (self.place / "status.json").write_text(json.dumps(self.status()))
        finally:
            try:
                job.wait(60)
            except subprocess.TimeoutExpired:
                job.kill()
        (self.place / "last.json").write_text(json.dumps(last))
        return [self.judge(rank, last.get(rank, {}), before[rank], after[rank]) for rank in self.ranks]

    def judge(self, rank, row, before, after):
        process = rank if self.processes > 1 else 0
        lines = self.own()[process]
        first, end = lines[0], lines[-1]
        cells, wrong = [f"{self.kind}, rank {rank}"], False
        names = {
            "step_ms": "step_ms_mean", "achieved": "achieved_tflops", "tflops": "gemm_tflops", "bus_gb_s": "bus_gb_s",
        }  # fmt: skip
        for name, seen in names.items():
            own, seen = end.get(name), row.get(seen)
            if own is None:
                cells.append("-")
                continue
            if name == "bus_gb_s":
                # The rank that enters last does not wait.
                own = max(lines[-1][name] for lines in self.own())
            is_wrong = seen is not None and abs(seen / own - 1) > TOLERANCE
            off = f" ({100 * (seen / own - 1):+.1f} %{', **wrong**' if is_wrong else ''})" if seen is not None else ""
            cells.append(f"{'unknown' if seen is None else format(seen, '.2f')} / {own:.2f}{off}")
            wrong |= is_wrong
        for what in ("gemms", "collectives"):
            seen = after[what] - before[what]
            own = end[what] - first[what] if what in end else None
            cells.append(f"{seen} / {'-' if own is None else own}{'' if seen == own or own is None else ' **wrong**'}")
            wrong |= own is not None and seen != own
        shares = row.get("gpu_time") or {}
        took = after["kernel_us"]
        cells.append(f"{after['kernels'] - before['kernels']}{f', {took:.0f} us' if took else ''}")
        cells.append(
            " ".join(f"{name.removesuffix('_pct')} {share:.0f}" for name, share in shares.items()) or "unknown"
        )
        cells.append(str(row.get("step_source")))
        return "| " + " | ".join(cells) + " |", wrong

    def is_same(self):
        """Whether the results without xpu-top are those with it, bit for bit."""
        results = [str(lines[0]["result"]) for lines in self.own() if lines]
        plain = [self.place / f"plain.{number}" for number in range(self.processes)]
        return bool(results) and results == [path.read_text().strip() for path in plain if path.exists()]


def main():
    given = arguments.parse_intermixed_args()
    if unknown := set(given.kinds) - set(KINDS):
        arguments.error(f"there is no {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    heads = (
        "program", "ms a step", "achieved TFLOPS", "TFLOPS", "bus GB/s", "GEMMs", "collectives", "named kernels",
        "GPU time, %", "steps",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    worst = 0
    jobs = [Job(given, kind, number) for number, kind in enumerate(given.kinds or KINDS)]
    for job in jobs:
        try:
            for line, wrong in job.run():
                print(line, flush=True)
                worst |= wrong
        except (RuntimeError, KeyError, IndexError) as error:
            print(f"| {job.kind} | failed: {error!r} |", flush=True)
            worst = 1
    for process in [job.start("plain", [], ROUNDS="50") for job in jobs]:
        process.wait(180)
    for job in jobs:
        same = job.is_same()
        print(f"{job.kind}: the result with xpu-top is {'the same' if same else '**another**'}")
        worst |= not same
    return worst


sys.exit(main())
