"""Real PyTorch under real launchers, if `make torch` has installed them.

PyTorch is too large for `make test` to install. Without it these tests print SKIPPED. See docs/measurements-log.md.
"""

import json
import pathlib
import subprocess
import time

import pytest
from conftest import BUILT, free_port, with_torch

RANKS = 4
LONGEST = 120
TRAINS = pathlib.Path(__file__).with_name("trains_with_gloo.py")
PROGRAM = BUILT / "xpu-top"
LAUNCHERS = {
    "torchrun": ("--nproc_per_node", str(RANKS), "--master_port", "{port}"),
    "accelerate": (
        *("launch", "--multi_gpu", "--num_processes", str(RANKS), "--num_machines", "1"),
        *("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "{port}"),
    ),
    "deepspeed": ("--num_gpus", str(RANKS), "--no_local_rank", "--master_port", "{port}"),
    "mpirun": ("--allow-run-as-root", "--oversubscribe", "-n", str(RANKS), "python3"),
}


class Job:
    """A job under one launcher, with or without `xpu-top run`."""

    def __init__(self, launcher, place, environment, watched=True, fails=()):
        path = f"{with_torch(launcher)}:{environment['PATH']}"
        self.base, meet = free_port(3), str(free_port())
        # DeepSpeed counts the accelerators.
        more = {"PATH": path, "MEET_AT": meet, "LOCAL_SIZE": str(RANKS), "DS_ACCELERATOR": "cpu"}
        self.environment = {**environment, **more, "XPU_TOP_BASE_PORT": str(self.base), "OMP_NUM_THREADS": "1"}
        self.enough = place / "enough"
        self.said = (place / "said").open("w+")
        start = [PROGRAM, "run", "--job", launcher, "--"] if watched else []
        words = [word.format(port=meet) for word in LAUNCHERS[launcher]]
        command = [*start, launcher, *words, TRAINS, self.enough, *fails]
        self.running = subprocess.Popen(command, env=self.environment, stdout=self.said, stderr=self.said)

    def status(self):
        done = subprocess.run(
            [PROGRAM, "status", "--json", "--now", "--hosts", "127.0.0.1", "--base-port", str(self.base)],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return json.loads(done.stdout) if done.stdout else {"ranks": [], "findings": []}

    def wait_for(self, seen):
        deadline = time.monotonic() + LONGEST
        while time.monotonic() < deadline:
            status = self.status()
            if seen(status):
                return status
            time.sleep(0.25)
        self.said.seek(0)
        raise AssertionError(f"{self.running.poll()=} {status}\n{self.said.read()}")

    def end(self):
        self.enough.touch()
        return self.running.wait(LONGEST)


def all_train(status):
    return [rank["rank"] for rank in status["ranks"] if rank["step"]] == list(range(RANKS))


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_all_ranks_of_a_launcher_are_seen(launcher, tmp_path, environment):
    job = Job(launcher, tmp_path, environment)
    try:
        status = job.wait_for(all_train)
        assert (status["job"], status["world_size"]) == (launcher, RANKS)
    finally:
        assert job.end() == 0
    job.wait_for(lambda status: all(rank["state"] == "exited" for rank in status["ranks"]))
    assert not job.status()["findings"]


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_the_rank_that_raised_is_named_and_the_exit_code_is_the_launchers(launcher, tmp_path, environment):
    (tmp_path / "alone").mkdir()
    alone = Job(launcher, tmp_path / "alone", environment, watched=False, fails=["2"])
    code = alone.end()
    job = Job(launcher, tmp_path, environment, fails=["2"])
    try:
        job.wait_for(all_train)
    finally:
        assert job.end() == code != 0
    status = job.wait_for(lambda status: status["findings"])
    (finding,) = status["findings"]
    assert finding["ranks"] == [2], finding
    assert "a shard is missing" in finding["evidence"], finding
