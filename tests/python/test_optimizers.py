"""The hook's source for PyTorch's optimizers, in real PyTorch, if `make torch` has installed it."""

import json
import pathlib
import subprocess

from conftest import free_port, with_torch

PROGRAM = pathlib.Path(__file__).with_name("steps_of_optimizers.py")


def test_each_step_of_an_optimizer_is_one_call_however_it_is_used(environment):
    bin = with_torch("python")
    done = subprocess.run(
        [f"{bin}/python", PROGRAM],
        env={**environment, "PATH": f"{bin}:{environment['PATH']}", "MASTER_PORT": str(free_port())},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    # PyTorch also calls a fused optimizer whose kernel skips the step. DeepSpeed calls its bf16 optimizer once when
    # it is made.
    assert seen.pop("GradScaler, fused") == {"calls": 12, "steps": 8}
    assert seen.pop("DeepSpeed") == {"calls": 4, "steps": 3}
    assert len(seen) == 10 and all(case["calls"] == case["steps"] > 0 for case in seen.values()), seen
