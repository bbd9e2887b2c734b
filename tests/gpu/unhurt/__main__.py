"""Checks that the hook changes neither the output nor the end of programs of PyTorch, CuPy and JAX on a real GPU.

    python3 tests/gpu/unhurt PROGRAMS PACKAGED OUT [NAME...]

PROGRAMS has xpu-top, xpu-collector and libxpu_hook.so; PACKAGED the same with the packages' hook. Each program runs
alone, under each build, and under each with XPU_TOP_DISABLE=1, all at the same time. One row per program: "same", or
what differs.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

here = pathlib.Path(__file__).parent
programs, packaged, out = (pathlib.Path(given).resolve() for given in sys.argv[1:4])
TORCHRUN = [
    sys.executable,
    "-m",
    "torch.distributed.run",
    "--nproc_per_node",
    "2",
    "--rdzv-backend",
    "c10d",
    "--rdzv-endpoint",
    "localhost:0",
    str(here.parent / "share.py"),
]
LOSS = here.parent / "same_loss.py"
PROGRAMS = {
    "loss of DDP": [*TORCHRUN, str(LOSS), "ddp", "40"],
    "loss of FSDP2": [*TORCHRUN, str(LOSS), "fsdp", "40"],
    "checkpoint at SIGTERM": [*TORCHRUN, str(here / "checkpoint.py"), "OWN"],
    "DataLoader workers": [sys.executable, str(here / "workers.py")],
    "torch.multiprocessing": [sys.executable, str(here / "processes.py")],
    "torch.compile": [sys.executable, str(here / "compiled.py")],
    "several runtimes": [sys.executable, str(here / "runtimes.py")],
}
CASES = {
    "plain": (None, {}),
    "plain again": (None, {}),
    "default": (programs, {}),
    "packaged": (packaged, {}),
    "default, disabled": (programs, {"XPU_TOP_DISABLE": "1"}),
    "packaged, disabled": (packaged, {"XPU_TOP_DISABLE": "1"}),
    "default, all timed": (programs, {"XPU_TOP_BUDGET": "off"}),
}


def start(name, case):
    folder, variables = CASES[case]
    own = tempfile.mkdtemp(prefix="unhurt-")
    command = [own if word == "OWN" else word for word in PROGRAMS[name]]
    environment = {**os.environ, **variables, "PYTHONUNBUFFERED": "1", "XPU_TOP_RUNTIME_DIR": own + "/run"}
    if folder:
        environment["XPU_TOP_BASE_PORT"] = str(20000 + 40 * list(CASES).index(case) + 400 * list(PROGRAMS).index(name))
        command = [str(folder / "xpu-top"), "run", "--job", name.split()[0], "--", *command]
    stem = out / f"{name}-{case}".replace(" ", "-").replace(",", "")
    outputs = [open(f"{stem}.{end}", "wb") for end in ("out", "err")]
    process = subprocess.Popen(command, env=environment, stdout=outputs[0], stderr=outputs[1], stdin=subprocess.DEVNULL)
    return process, stem, own, time.monotonic()


def ended(running):
    process, stem, own, since = running
    try:
        code = process.wait(timeout=max(1, since + 240 - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        code = "no end within 240 s"
    files = sorted(path.name for path in pathlib.Path(own).glob("checkpoint-*"))
    return {"code": code, "stdout": pathlib.Path(f"{stem}.out").read_text(), "files": files}


out.mkdir(parents=True, exist_ok=True)
wrong = 0
names = sys.argv[4:] or list(PROGRAMS)
print("| program | " + " | ".join(list(CASES)[1:]) + " |")
for name in names:
    running = {case: start(name, case) for case in CASES}
    said = {case: ended(one) for case, one in running.items()}
    row = []
    for case in list(CASES)[1:]:
        different = [what for what in said["plain"] if said[case][what] != said["plain"][what]]
        wrong += bool(different)
        row.append("same" if not different else "; ".join(f"{what}: {said[case][what]!r:.200}" for what in different))
    print(f"| {name} | " + " | ".join(row) + " |", flush=True)
    plain = said["plain"]
    print(
        f"  plain: code {plain['code']}, {len(plain['stdout'].splitlines())} lines, files {plain['files']}", flush=True
    )
sys.exit(bool(wrong))
