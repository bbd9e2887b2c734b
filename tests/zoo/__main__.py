"""Runs programs in common styles, and compares xpu-top's report of their steps with the programs' own.

    python3 tests/zoo PROGRAMS OUT [--at-once N] [--seconds S] [--capture] [--count] [NAME...]

PROGRAMS has xpu-top, xpu-collector and libxpu_hook.so. Each program counts its own steps and logs when each was done;
`status --json` is read while it trains. The step number is right if it is within one of the program's own at the
moment that status gives for it. The time is right if it is within 2 % of the program's own mean over the same steps.
For a program that trains nothing, it is right to show no step. stdout gets one row per program, and OUT/zoo.json
everything. With --count, the hook's GEMMs and collectives are compared with those of tests/gpu/count.c, which is
preloaded, and the FLOPs per step with those of PyTorch's counter; "-" where a program has no such counter (JAX,
CuPy). Ranks share a GPU if there are too few. Without a GPU, programs that need one are left out, and sizes are
small.
"""

import argparse
import bisect
import concurrent.futures
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent / "programs"
SHARE = HERE.parents[1] / "gpu" / "share.py"
# Name: script and arguments, the number of ranks, and what it needs.
ZOO = {
    "DDP, equal blocks": (2, "ddp_equal_blocks.py"),
    "DDP, accumulation, all reduce": (2, "accumulate.py reduce"),
    "DDP, accumulation, no_sync": (2, "accumulate.py no_sync"),
    "FSDP2": (2, "fsdp2.py"),
    "tensor parallel": (2, "tensor_parallel.py"),
    "pipeline 1F1B": (2, "pipeline.py 1f1b"),
    "pipeline interleaved": (2, "pipeline.py interleaved"),
    "mixture of experts": (2, "moe.py"),
    "torch.compile default": (2, "compiled.py default"),
    "torch.compile reduce-overhead": (2, "compiled.py reduce-overhead"),
    "torch.compile max-autotune": (2, "compiled.py max-autotune-no-cudagraphs"),
    "waits every 8 steps": (2, "waits.py"),
    "waits every 8 steps, slow loader": (2, "waits.py loader"),
    "waits every 8 steps, slow loader, marked": (2, "waits.py loader marked"),
    "Trainer of transformers": (2, "hf_trainer.py"),
    "accelerate, accumulation 4": (2, "accelerate_loop.py"),
    "Lightning": (2, "lightning_fit.py"),
    "update by hand": (2, "by_hand.py"),
    "GAN": (1, "gan.py"),
    "sequences of varying length": (1, "variable_length.py"),
    "GradScaler skips": (1, "scaler.py"),
    "ViT of timm": (1, "images.py vit"),
    "ResNet of torchvision": (1, "images.py resnet"),
    "LoRA of peft": (1, "lora.py"),
    "sentence-transformers": (1, "sentences.py"),
    "torch-geometric": (1, "graph_network.py"),
    "optimizer in backward": (1, "optimizer_in_backward.py"),
    "CUDA graph of a step": (1, "graphed.py"),
    "JAX": (1, "jax_mlp.py"),
    "CuPy": (1, "cupy_loop.py"),
    "PPO": (1, "ppo.py"),
    "distillation": (1, "distill.py"),
    "diffusion UNet": (1, "diffusion.py"),
    "LBFGS": (1, "lbfgs.py"),
    "SAM": (1, "sam.py"),
    "torch.func, compiled update": (1, "functional.py"),
    "NCCL by ctypes": (2, "nccl_by_ctypes.py"),
    "FSDP1, evaluation": (2, "fsdp1.py"),
    "two models on two threads": (1, "two_threads.py"),
    "JAX, flax": (1, "jax_flax.py"),
    "Trainer of transformers, saves": (2, "hf_trainer_saves.py"),
    "recommender": (1, "recommender.py"),
    "inference server": (1, "serve.py"),
    "DDP, uneven, PowerSGD": (2, "ddp_uneven.py"),
    "JAX, two processes": (2, "jax_processes.py"),
    "JAX, one process, all GPUs": (1, "jax_devices.py"),
    "DataParallel": (1, "data_parallel.py"),
    "DDP by hand in a CUDA graph": (2, "ddp_graphed.py"),
    "FSDP2, compiled, checkpoints": (2, "fsdp2_compiled.py"),
    "local SGD": (2, "local_sgd.py"),
    "DDP by mp.spawn": (2, "spawned.py 2"),
    "Muon and AdamW": (1, "muon.py"),
    "rollouts and updates": (1, "rollouts.py"),
    "LSTM, truncated": (1, "truncated_bptt.py"),
    "MAML": (1, "maml.py"),
    "DQN": (1, "dqn.py"),
    "torch.compile of the optimizer": (1, "compiled_step.py"),
    "averaged weights, evaluations": (1, "average_and_evaluate.py"),
    "sparse and dense optimizer": (1, "sparse_and_dense.py"),
    "accumulation by tokens": (1, "uneven_accumulation.py"),
    "unfreezing": (1, "unfreezing.py"),
    "evolution strategies": (1, "evolution.py"),
    "JAX, ten updates in a call": (1, "jax_scan.py"),
    "GAN, five updates of the critic": (1, "wgan.py"),
    "cross-validation": (1, "kfold.py"),
    "federated": (1, "federated.py"),
    "ensemble": (1, "ensemble.py"),
    "curriculum": (1, "curriculum.py"),
    "ZeroRedundancyOptimizer": (2, "zero_redundancy.py"),
    "post-local SGD": (2, "post_local_sgd.py"),
    "Fabric, accumulation 4": (1, "fabric_loop.py"),
    "actor and learner": (2, "actor_learner.py"),
    "Gaussian process of GPyTorch": (1, "gaussian_process.py"),
    "neural ODE of torchdiffeq": (1, "neural_ode.py"),
    "DDP, saves in the background": (2, "async_checkpoint.py"),
    "JAX, Equinox": (1, "jax_equinox.py"),
    "JAX, several calls a step": (1, "jax_two_calls.py"),
    "NumPyro": (1, "numpyro_svi.py"),
    "libtorch": (1, "native.py libtorch_train.cpp"),
    "cuBLAS in C++": (1, "native.py cublas_train.cpp"),
}
# Started directly: they start their own ranks, or use all GPUs.
ALONE = {"JAX, one process, all GPUs", "DataParallel", "DDP by mp.spawn"}
NEEDS_GPU = {
    "CuPy", "JAX", "CUDA graph of a step", "JAX, flax", "NCCL by ctypes", "JAX, two processes",
    "JAX, one process, all GPUs", "DDP by hand in a CUDA graph", "JAX, ten updates in a call",
    "JAX, Equinox", "JAX, several calls a step", "NumPyro", "libtorch", "cuBLAS in C++",
}  # fmt: skip
# PyTorch's counter of FLOPs changes what is compiled, and cannot count what a graph replays.
WITHOUT_FLOPS = {
    "torch.compile default", "torch.compile reduce-overhead", "torch.compile max-autotune", "CUDA graph of a step",
    "DDP by hand in a CUDA graph", "FSDP2, compiled, checkpoints", "torch.func, compiled update",
    "two models on two threads", "torch.compile of the optimizer",
}  # fmt: skip
# These programs count something else than steps, so it is right to show none.
NO_STEPS = {"inference server"}
TOLERANCE = 0.02

arguments = argparse.ArgumentParser(prog="tests/zoo")
arguments.add_argument("programs", type=pathlib.Path)
arguments.add_argument("out", type=pathlib.Path)
arguments.add_argument("--at-once", type=int, default=1)
arguments.add_argument("--seconds", type=float, default=36, help="of training before status is asked")
arguments.add_argument("--start", type=float, default=120, help="seconds that a program may take to its first step")
arguments.add_argument("--capture", action="store_true", help="three steps of each program too")
arguments.add_argument("--count", action="store_true", help="GEMMs, collectives and FLOPs by independent counters too")
arguments.add_argument("names", nargs="*", metavar="NAME", help="of programs; all without one")


taken, taking = set(), threading.Lock()


def take_base():
    """Sixteen free ports, below those that the kernel gives to connections."""
    with taking:
        for base in range(16 * (os.getpid() % 500) + 20000, 32000, 16):
            with contextlib.ExitStack() as sockets, contextlib.suppress(OSError):
                for port in range(base, base + 16):
                    sockets.enter_context(socket.socket()).bind(("0.0.0.0", port))
                if base not in taken:
                    taken.add(base)
                    return base
    raise SystemExit("no ports are free between 20000 and 32000")


def end_all(variable):
    """Kills every process with this in its environment, because torchrun's workers are in sessions of their own."""
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                os.kill(int(process.name), signal.SIGKILL)
        except OSError:
            continue


def own_steps(path):
    """The times and step numbers that a rank logged."""
    steps = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    steps = [(float(at), int(number)) for at, number in (line for line in steps if len(line) == 2)]
    return [at for at, _ in steps], [number for _, number in steps]


def own_mean(log, last, steps):
    """The milliseconds per step over this many steps, up to the one logged at that position."""
    times, numbers = log
    first = bisect.bisect_left(numbers, numbers[last] - steps)
    if steps < 1 or numbers[last] - numbers[first] != steps:
        return None
    return (times[last] - times[first]) / steps * 1e3


def watch(given, name):
    ranks, line = ZOO[name]
    place = pathlib.Path(tempfile.mkdtemp(prefix="zoo-"))
    base, log = take_base(), place / "own"
    gpus = os.environ.get("ZOO_GPUS")
    environment = {
        **os.environ,
        "ZOO_LOG": str(log),
        "XPU_TOP_BASE_PORT": str(base),
        "XPU_TOP_RUNTIME_DIR": str(place / "run"),
        "HOME": str(place),
        "PYTHONPATH": str(HERE),
        "PYTHONUNBUFFERED": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(place / "inductor"),
    }
    if ranks == 1 and gpus and name not in ALONE:
        environment["CUDA_VISIBLE_DEVICES"] = str(list(ZOO).index(name) % int(gpus))
    if given.count:
        environment["LD_PRELOAD"] = str(given.out / "libcount.so")
        environment["ZOO_COUNT"] = "calls" if name in WITHOUT_FLOPS else "flops"
    script = [str(HERE / line.split()[0]), *line.split()[1:]]
    if ranks > 1 and name not in ALONE:
        launch = ["-m", "torch.distributed.run", "--nproc_per_node", str(ranks), "--rdzv-backend", "c10d"]
        script = [*launch, "--rdzv-endpoint", "localhost:0", str(SHARE), *script]
    xpu_top = str(given.programs / "xpu-top")
    with (place / "output").open("w") as output:
        job = subprocess.Popen(
            [xpu_top, "run", "--job", "zoo", "--", sys.executable, *script],
            env=environment, stdout=output, stderr=output, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    logs = [place / f"own.{rank}" for rank in range(ranks)]
    try:
        until = time.monotonic() + given.start
        while time.monotonic() < until and job.poll() is None and not all(own_steps(path)[0] for path in logs):
            time.sleep(0.25)
        if job.poll() is not None or not all(own_steps(path)[0] for path in logs):
            return {"program": name, "failed": (place / "output").read_text()[-1500:]}
        time.sleep(given.seconds)
        ask = [xpu_top, "status", "--json", "--hosts", "127.0.0.1", "--base-port", str(base)]
        said = subprocess.run(ask, env=environment, capture_output=True, text=True, timeout=60, check=False)
        status = json.loads(said.stdout) if said.stdout else {}
        time.sleep(0.2)
        row = judge(name, ranks, status, [own_steps(path) for path in logs], (place / "output").read_text())
        row["counts"] = [json.loads(path.read_text()) for path in map(counts_of, logs) if path.exists()]
        if row["counts"]:
            row["flops"] = [flops(ask, environment, rank, log) for rank, log in enumerate(logs)]
        if given.capture and row["source"][0]:
            where = ask[3:]
            row["captured"] = captured(xpu_top, where, environment, place / "capture.bin")
        return row
    finally:
        end_all(f"XPU_TOP_BASE_PORT={base}")
        job.wait()
        shutil.copytree(place, given.out / name.replace(" ", "-").replace(",", ""), dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("inductor", "run", ".*"))  # fmt: skip
        shutil.rmtree(place, ignore_errors=True)


def counts_of(log):
    return log.with_name(log.name.replace("own.", "own.counts."))


def flops(ask, environment, rank, log):
    """The FLOPs of GEMMs that xpu-top saw of a rank, over the rank's own steps so far."""
    command = [*ask, "--now", "--rank", str(rank), "--wait", "4"]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    mine = next((one for one in json.loads(said.stdout or "{}").get("ranks", []) if one["rank"] == rank), {})
    seen = sum(2 * gemm["m"] * gemm["n"] * gemm["k"] * gemm["batch"] * gemm["count"] for gemm in mine.get("gemms", []))
    return seen / max(own_steps(log)[1], default=1)


def captured(xpu_top, where, environment, path):
    """Which steps a capture of three has, for each rank, or why there is none."""
    command = [xpu_top, "capture", "--steps", "3", "--no-watch", "--wait", "60", "-o", str(path), *where]
    said = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    if said.returncode:
        return said.stderr.strip()
    report = subprocess.run([xpu_top, "report", "--json", str(path)], capture_output=True, text=True, check=True)
    return [[step["step"] for step in rank["steps"]] for rank in json.loads(report.stdout)["ranks"]]


def judge(name, ranks, status, logs, output):
    row = {"program": name, "ranks": ranks, "own": [], "shown": [], "number": [], "time": []}
    # The GPUs of one process are `0.0`, `0.1`, with the same steps.
    known = {int(str(rank["rank"]).partition(".")[0]): rank for rank in reversed(status.get("ranks", []))}
    for rank, log in enumerate(logs):
        shown = known.get(rank, {})
        step, mean = shown.get("step"), shown.get("step_ms_mean", shown.get("step_ms_p50"))
        # The optimizer ends a step, and the program counts it a moment later.
        times, numbers = log
        heard = shown.get("step_at") or times[-1]
        at = bisect.bisect_right(times, heard + 0.002) - 1
        own = numbers[at] if at >= 0 else 0
        # Each end may be one step away from where the program logs its own.
        ends = [end for end in (at, at - 1, at + 1) if 0 <= end < len(times)]
        own_ms = [own_mean(log, end, shown.get("steps_measured") or 0) for end in ends]
        own_ms = [mean for mean in own_ms if mean]
        row["own"].append((own, own_ms[0] if own_ms else None))
        row["shown"].append((step, mean))
        # A number that no longer moves is outdated.
        moves = times[-1] - heard < 5 + 3 * max(own_ms, default=0) / 1e3
        if name in NO_STEPS:
            for what, said in (("number", step), ("time", mean)):
                row[what].append("wrong" if said is not None else "right" if shown else "unknown")
            continue
        row["number"].append("unknown" if step is None else "right" if abs(step - own) <= 1 and moves else "wrong")
        if mean is None or not own_ms:
            row["time"].append("unknown")
        else:
            is_right = min(own_ms) * (1 - TOLERANCE) <= mean <= max(own_ms) * (1 + TOLERANCE)
            row["time"].append("right" if is_right else "wrong")
    steps = status.get("steps", {})
    row["source"] = (steps.get("source"), steps.get("optimizer"), steps.get("timed_by"))
    row["p50"] = steps.get("p50_ms", steps.get("median_ms"))
    row["findings"] = [(finding["kind"], finding["evidence"]) for finding in status.get("findings", [])]
    row["overhead_pct"] = status.get("coverage", {}).get("overhead_pct")
    row["blind"] = status.get("coverage", {}).get("blind")
    row["tflops"] = [rank.get("gemm_tflops") for rank in status.get("ranks", [])]
    row["complaints"] = [line for line in output.splitlines() if "xpu-top" in line.lower()][:3]
    return row


def figure(value):
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else value


def line(row):
    if "failed" in row:
        return f"| {row['program']} | did not run: {row['failed'].strip().splitlines()[-1:]} |"
    sign = {"right": "", "wrong": " **wrong**", "unknown": " unknown"}
    cells = [row["program"]]
    for of, what in ((0, "number"), (1, "time")):
        pairs = [
            f"{figure(own[of])} / {figure(shown[of])}{sign[verdict]}"
            for own, shown, verdict in zip(row["own"], row["shown"], row[what])
        ]
        cells.append("; ".join(pairs))
    # Reports of ranks come at different moments, so ranks agree if each has its own number right.
    agree = set(row["number"]) == {"right"}
    cells += [" ".join(str(word) for word in row["source"] if word), "yes" if agree else "no"]
    cells.append("; ".join(f"{kind}" for kind, _ in row["findings"]) or "none")
    cells.append(f"{figure(row['overhead_pct'])} %")
    counts = row.get("counts") or [{}] * len(row["own"])
    for what in ("gemms", "collectives"):
        cells.append("; ".join("{} / {}".format(*count[what]) if what in count else "-" for count in counts))
    of_models = [count.get("flops") for count in counts]
    pairs = zip(row.get("flops", of_models), of_models)
    cells.append("; ".join(f"{seen / own:.3f}" if seen and own else "-" for seen, own in pairs))
    cells.append(str(row.get("captured", "")))
    return "| " + " | ".join(cells) + " |"


def main():
    given = arguments.parse_intermixed_args()
    given.programs, given.out = given.programs.resolve(), given.out.resolve()
    given.out.mkdir(parents=True, exist_ok=True)
    import torch

    has_gpu = torch.cuda.is_available()
    if unknown := [name for name in given.names if name not in ZOO]:
        arguments.error(f"no program is called {', '.join(unknown)}; there are: {', '.join(ZOO)}")
    names = given.names or [name for name in ZOO if has_gpu or name not in NEEDS_GPU]
    heads = (
        "program", "step: own / shown", "ms a step: own / shown", "source", "ranks agree", "findings", "overhead",
        "GEMMs: seen / called", "collectives: seen / called", "FLOPs of GEMMs a step, of the model's", "captured",
    )  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{' --- |' * len(heads)}", flush=True)
    if given.count:
        count = HERE.parents[1] / "gpu" / "count.c"
        library = given.out / "libcount.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", library, count, "-ldl"], check=True)
    rows = []
    with concurrent.futures.ThreadPoolExecutor(given.at_once) as pool:
        for row in pool.map(lambda name: watch(given, name), names):
            rows.append(row)
            print(line(row), flush=True)
            (given.out / "zoo.json").write_text(json.dumps(rows, indent=1))
    verdicts = [verdict for row in rows for verdict in row.get("number", ["failed"]) + row.get("time", [])]
    print({verdict: verdicts.count(verdict) for verdict in sorted(set(verdicts))})
    return 1 if {"wrong", "failed"} & set(verdicts) else 0


sys.exit(main())
