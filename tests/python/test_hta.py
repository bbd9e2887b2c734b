"""Captures in Kineto's format, read by Holistic Trace Analysis, if `make torch` has installed it.

Without it these tests print SKIPPED.
"""

import gzip
import json
import pathlib
import re
import subprocess
import time

import pytest
from conftest import ROOT, running_demo, with_torch

PROGRAM = ROOT / "target/release/xpu-top"
READER = pathlib.Path(__file__).parent / "reads_kineto.py"
RANKS, STEPS = 4, 4


@pytest.fixture(scope="module")
def captures(tmp_path_factory):
    """Captures of steps without and with all kernels, and of a period."""
    place = tmp_path_factory.mktemp("captures")
    with running_demo("--ranks", str(RANKS), "--nodes", "2", "--steps", "100000") as base:
        where = ["--hosts", "127.0.0.[1-2]", "--base-port", str(base)]
        seen, until = {}, time.monotonic() + 60
        while ((seen.get("steps") or {}).get("min") or 0) < 3 or seen["coverage"]["ranks_seen"] < RANKS:
            assert time.monotonic() < until, f"the demo does not train: {seen}"
            answer = subprocess.run([PROGRAM, "status", "--json", "--now", *where], capture_output=True, text=True)
            seen = json.loads(answer.stdout or "{}")
        kinds = {
            "steps": ["--steps", str(STEPS)],
            "kernels": ["--steps", str(STEPS), "--kernels"],
            "time": ["--for", "300ms"],
        }
        for name, extent in kinds.items():
            command = [PROGRAM, "capture", *extent, "--no-watch", "-o", place / name, "--wait", "60", *where]
            subprocess.run(command, check=True)
    return place


def exported(captures, name, tmp_path):
    folder = tmp_path / name
    subprocess.run([PROGRAM, "export", captures / name, "--kineto", folder], check=True)
    return folder


def report(captures, name):
    command = [PROGRAM, "report", "--json", captures / name]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


def analysed(folder):
    done = subprocess.run([f"{with_torch('torchrun')}/python", READER, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_names_and_begins_of_files_are_as_their_readers_expect(captures, tmp_path):
    folder = exported(captures, "steps", tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"rank-{rank:04}.pt.trace.json.gz" for rank in range(RANKS)]
    bases = set()
    for rank, name in enumerate(names):
        text = gzip.decompress((folder / name).read_bytes()).decode()
        assert re.search(r'"rank":\s+(\d+)', text)[1] == str(rank)
        trace = json.loads(text)
        assert trace["distributedInfo"]["world_size"] == RANKS
        bases.add(trace["baseTimeNanoseconds"])
        steps = [event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#")]
        assert len(steps) == STEPS
        ends = [step["ts"] + step["dur"] for step in steps]
        assert all(end <= step["ts"] for end, step in zip(ends, steps[1:])), "TensorBoard refuses steps that intersect"
    assert len(bases) == 1, "times of two files can be compared"
    again = subprocess.run([PROGRAM, "export", captures / "steps", "--kineto", folder], capture_output=True, text=True)
    assert again.returncode == 64 and "it exists" in again.stderr, again
    one = tmp_path / "one.json.gz"
    command = [PROGRAM, "export", captures / "steps", "--kineto", one]
    several = subprocess.run(command, capture_output=True, text=True)
    assert several.returncode == 64 and f"{RANKS} ranks" in several.stderr, several


@pytest.mark.parametrize("name", ["steps", "kernels", "time"])
def test_hta_agrees_with_the_report(captures, tmp_path, name):
    found, ours = analysed(exported(captures, name, tmp_path)), report(captures, name)
    assert [row["rank"] for row in found["temporal"]] == list(range(RANKS))
    for row, overlap, rank in zip(found["temporal"], found["overlap"], ours["ranks"]):
        summary = rank["summary"]
        # HTA's time reaches from the first kernel to the last; HTA knows no steps.
        assert row["compute_time(us)"] == pytest.approx(summary["compute_ns"] / 1e3, rel=0.03), (row, summary)
        assert 0 < row["idle_time(us)"] < row["kernel_time(us)"]
        hidden = 1 - summary["exposed_ns"] / summary["communication_ns"]
        assert overlap["comp_comm_overlap_pctg"] == pytest.approx(100 * hidden, abs=3), (overlap, summary)
    assert {row["kernel_type"].split(" ")[0] for row in found["kinds"]} >= {"COMPUTATION", "COMMUNICATION"}
    assert {row["rank"] for row in found["idle"]} == set(range(RANKS))
    assert all(count > 0 for count in found["launches"].values())
    iterations = {int(rank): steps for rank, steps in found["iterations"].items()}
    steps = sorted(ours["steps"]) or [-1]
    assert all(iterations[rank] == steps for rank in range(RANKS)), (iterations, steps)
