"""The profiler of real PyTorch, asked from outside: where `make torch` has installed it.

PyTorch is too large for `make test` to install: without it these say SKIPPED.
"""

import gzip
import json
import subprocess
import tempfile

import pytest
from test_launchers import LONGEST, PROGRAM, RANKS, Job, all_train


@pytest.fixture
def job(tmp_path, environment):
    # The daemon's name is the host's: a folder of this test's own in its place, short enough for a client's name.
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as sockets:
        job = Job("torchrun", tmp_path, {**environment, "KINETO_IPC_SOCKET_DIR": sockets})
        try:
            job.wait_for(all_train)
            yield job
        finally:
            assert job.end() == 0


def kineto(job, folder, *more):
    command = [PROGRAM, "kineto", "--hosts", "127.0.0.1", "--base-port", str(job.base), "-o", folder, *more]
    done = subprocess.run(command, env=job.environment, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done
    return json.loads((folder / "manifest.json").read_text())


def trace(folder, rank):
    return json.loads(gzip.decompress((folder / f"rank-{rank:04}.json.gz").read_bytes()))


def optimizer_steps(found):
    begun = found.get("baseTimeNanoseconds", 0)
    events = [event for event in found["traceEvents"] if event.get("name", "").startswith("Optimizer.step#")]
    return [begun / 1e9 + event["ts"] / 1e6 for event in events if event["cat"] == "user_annotation"]


def test_all_ranks_trace_the_same_steps(job, tmp_path):
    manifest = kineto(job, tmp_path / "steps", "--steps", "3", "--record-shapes")
    assert [rank["status"] for rank in manifest["ranks"]] == ["written"] * RANKS
    assert manifest["same_steps"] is True, manifest
    traces = [trace(tmp_path / "steps", rank) for rank in range(RANKS)]
    starts = [optimizer_steps(found) for found in traces]
    assert [len(steps) for steps in starts] == [3] * RANKS
    # Nobody begins one before all have ended the one before: an all-reduce is in each.
    for number in range(2):
        assert max(steps[number] for steps in starts) < min(steps[number + 1] for steps in starts), starts
    assert {found["trace_id"] for found in traces} == {manifest["trace_id"]}
    assert any("Input Dims" in event.get("args", {}) for event in traces[0]["traceEvents"])

    # It goes on training, and can be asked again.
    timed = kineto(job, tmp_path / "time", "--duration", "300ms", "--with-stack", "--ranks", "0,3")
    assert [rank["rank"] for rank in timed["ranks"]] == [0, 3]
    assert any(event.get("cat") == "python_function" for event in trace(tmp_path / "time", 3)["traceEvents"])


def test_a_job_trains_as_before_where_no_daemon_answers(tmp_path, environment):
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as sockets:
        nobody = {**environment, "KINETO_IPC_SOCKET_DIR": sockets, "XPU_TOP_KINETO_SOCKET": "off"}
        job = Job("torchrun", tmp_path, nobody)
        try:
            job.wait_for(all_train)
        finally:
            assert job.end() == 0
