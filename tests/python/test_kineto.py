"""The profiler of real PyTorch, started from outside, if `make torch` has installed PyTorch.

PyTorch is too large for `make test` to install. Without it these tests print SKIPPED.
"""

import collections
import concurrent.futures
import contextlib
import gzip
import json
import os
import subprocess
import tempfile

import pytest
from conftest import with_torch
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto
from test_launchers import LONGEST, PROGRAM, RANKS, Job, all_train


@pytest.fixture
def job(tmp_path, environment):
    # The host has only one daemon name. This test uses its own folder instead, whose path is short enough for a
    # client's name.
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
    # Three, and the further one, of which kernels could be missing.
    assert manifest["window"]["further_steps"] == 1
    assert [len(steps) for steps in starts] == [4] * RANKS
    # Each step has an all-reduce, so no rank begins a step before all ranks have ended the previous one.
    for number in range(3):
        assert max(steps[number] for steps in starts) < min(steps[number + 1] for steps in starts), starts
    assert {found["trace_id"] for found in traces} == {manifest["trace_id"]}
    assert any("Input Dims" in event.get("args", {}) for event in traces[0]["traceEvents"])

    # The job continues to train, and can be traced again.
    timed = kineto(job, tmp_path / "time", "--duration", "300ms", "--with-stack", "--ranks", "0,3")
    assert [rank["rank"] for rank in timed["ranks"]] == [0, 3]
    # Kineto ends a period at one of its own ticks.
    assert all(290 < rank["traced_ms"] < 2000 for rank in timed["ranks"]), timed
    window = timed["window"]
    assert window["asked_ms"] == 300 and window["duration_ms"] == max(rank["traced_ms"] for rank in timed["ranks"])
    assert any(event.get("cat") == "python_function" for event in trace(tmp_path / "time", 3)["traceEvents"])


def test_a_capture_has_the_traces_and_the_stacks_of_its_steps(job, tmp_path):
    where = ["--hosts", "127.0.0.1", "--base-port", str(job.base)]
    capture = tmp_path / "c.bin"
    command = [PROGRAM, "capture", "--steps", "3", "--kineto", "--python=100", "--no-watch", "-o", capture, *where]
    done = subprocess.run(command, env=job.environment, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done
    manifest = json.loads((tmp_path / "c.bin.kineto" / "manifest.json").read_text())
    report = subprocess.run([PROGRAM, "report", "--json", capture], capture_output=True, check=True)
    report = json.loads(report.stdout)
    window = manifest["window"]
    assert report["asked"] == [window["first_step"], window["last_step"]], manifest
    assert [rank["why"] for rank in report["python"]["ranks"]] == [None] * RANKS, report["python"]
    assert {row["file"].rsplit("/")[-1] for row in report["python"]["functions"]} >= {"trains_with_gloo.py"}

    # All use one clock: an optimizer call ends the step that contains it, and arrows connect all ranks.
    timeline = tmp_path / "c.json"
    subprocess.run([PROGRAM, "export", capture, "--chrome", timeline], check=True)
    events = json.loads(timeline.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    for rank in range(RANKS):
        its = [event for event in slices if event["pid"] == rank]
        spans = {
            begin: sorted((event["ts"], event["ts"] + event["dur"]) for event in its if event["name"].startswith(begin))
            for begin in ("step ", "Optimizer.step#", "aten::")
        }
        assert (len(spans["step "]), len(spans["Optimizer.step#"])) == (3, 4), spans
        assert len(spans["aten::"]) > 30
        for step, call in zip(spans["step "], spans["Optimizer.step#"]):
            assert step[0] < call[0] < step[1] + 2000 and call[1] < step[1] + 2000, (rank, step, call)
    arrows = {}
    for event in events:
        if event["ph"] in "stf":
            arrows.setdefault(event["id"], set()).add(event["pid"])
    assert arrows and all(ranks == set(range(RANKS)) for ranks in arrows.values()), arrows

    # The same in Perfetto's form.
    path = tmp_path / "c.pftrace"
    subprocess.run([PROGRAM, "export", capture, "--perfetto", path], check=True)
    slices, flows = read_with_perfetto(path)
    for rank in range(RANKS):
        assert len([name for name in slices[rank] if name.startswith("aten::")]) > 30, rank
        assert len([name for name in slices[rank] if name.startswith("Optimizer.step#")]) == 4, rank
    assert flows and all(ranks == set(range(RANKS)) for ranks in flows.values()), flows


def read_with_perfetto(path):
    """The names of each rank's slices, and the ranks that each flow connects."""
    trace = perfetto.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks = {packet.track_descriptor.uuid: packet.track_descriptor for packet in trace.packet}

    def rank_of(uuid):
        while not tracks[uuid].HasField("process"):
            uuid = tracks[uuid].parent_uuid
        return int(tracks[uuid].process.process_name.split(" ")[1])

    slices, flows = collections.defaultdict(list), collections.defaultdict(set)
    for packet in trace.packet:
        event = packet.track_event
        if packet.HasField("track_event") and event.type == perfetto.TrackEvent.TYPE_SLICE_BEGIN:
            rank = rank_of(event.track_uuid)
            slices[rank].append(event.name)
            for flow in [*event.flow_ids, *event.terminating_flow_ids]:
                flows[flow].add(rank)
    return slices, flows


def test_each_option_adds_what_pytorch_records_for_it(job, tmp_path):
    options = ["--record-shapes", "--profile-memory", "--with-flops", "--with-modules", "--with-stack"]
    manifest = kineto(job, tmp_path / "all", "--steps", "2", "--ranks", "0", *options)
    assert all(manifest["options"].values()), manifest
    events = trace(tmp_path / "all", 0)["traceEvents"]
    gemms = [event["args"] for event in events if event.get("name") == "aten::addmm"]
    assert len(gemms) == 3 and all(args["Input Dims"][1:3] == [[8, 64], [64, 64]] for args in gemms), gemms
    python = [event for event in events if event.get("cat") == "python_function"]
    assert any("trains_with_gloo.py" in event["name"] for event in python)
    modules = [event["name"] for event in python if "Python module id" in event["args"]]
    assert modules.count("nn.Module: Linear_0") == 3, modules
    # docs/kineto.md says so: PyTorch writes neither allocations nor FLOPs into a trace from outside.
    assert not any(event.get("name") == "[memory]" for event in events)
    assert not any("flops" in name.lower() for event in events for name in event.get("args", {}))


def read_with_torch(script, *arguments):
    command = [f"{with_torch('torchrun')}/python", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_pytorch_and_hta_read_the_traces_of_all_ranks(job, tmp_path):
    folder = tmp_path / "steps"
    kineto(job, folder, "--steps", "2", "--record-shapes")
    # PyTorch's readers open uncompressed files.
    for rank in range(RANKS):
        (tmp_path / f"{rank}.json").write_bytes(gzip.decompress((folder / f"rank-{rank:04}.json.gz").read_bytes()))

    # The layer multiplies (8, 64) by (64, 64) once a step. Its FLOPs follow from the shapes in the trace.
    by_torch = """
import json, sys
from torch._inductor.analysis.profile_analysis import JsonProfile
from torch.profiler._utils import map_recorded_events_to_aten_ops_with_stack_trace
flops = []
for path in sys.argv[1:]:
    profile = JsonProfile(path)
    profile.augment_trace()
    profile.report()
    map_recorded_events_to_aten_ops_with_stack_trace(profile.data)
    flops.append([profile.calculate_flops(event) for event in profile.events if event["name"] == "aten::addmm"])
print(json.dumps(flops))
"""
    flops = read_with_torch(by_torch, *(tmp_path / f"{rank}.json" for rank in range(RANKS)))
    assert flops == [[2 * 8 * 64 * 64] * 3] * RANKS

    # HTA's other analyses need GPU events, and gloo has none.
    by_hta = """
import json, pathlib, sys
from hta.trace_analysis import TraceAnalysis
folder = pathlib.Path(sys.argv[1])
files = {rank["rank"]: rank["file"] for rank in json.loads((folder / "manifest.json").read_text())["ranks"]}
analysis = TraceAnalysis(trace_files=files, trace_dir=str(folder))
names = analysis.t.symbol_table.sym_table
steps = {rank: sum(names[at].startswith("Optimizer.step#") for at in table["name"])
    for rank, table in analysis.t.traces.items()}
spans = analysis.get_gpu_user_annotation_breakdown(use_gpu_annotation=False, visualize=False)
rows = [[int(row["rank"]), row["name"], row["sum (us)"]] for _, row in spans.iterrows()]
print(json.dumps([steps, rows]))
"""
    steps, rows = read_with_torch(by_hta, folder)
    assert steps == {str(rank): 3 for rank in range(RANKS)}
    for rank in range(RANKS):
        events = trace(folder, rank)["traceEvents"]
        ours = [event["dur"] for event in events if event.get("name") == "Optimizer.step#SGD.step"]
        [found] = [took for of, name, took in rows if (of, name) == (rank, "Optimizer.step#SGD.step")]
        # HTA rounds the begin and the end of each event to whole microseconds.
        assert ours and found == pytest.approx(sum(ours), abs=2 * len(ours)), (rank, ours, rows)


def test_jobs_of_two_collectors_are_traced_at_once(tmp_path, environment):
    # Neither job has a folder of the user's: each uses the folder that `xpu-top run` sets. The real shared name is
    # left alone.
    shared = {**environment, "XPU_TOP_KINETO_SOCKET": f"xpu-top-two-{os.getpid()}"}
    with contextlib.ExitStack() as ending:
        jobs = []
        for name in "ab":
            (tmp_path / name).mkdir()
            runtime = ending.enter_context(tempfile.TemporaryDirectory(prefix="k-", dir="/tmp"))
            jobs.append(Job("torchrun", tmp_path / name, {**shared, "XPU_TOP_RUNTIME_DIR": runtime}))
            ending.callback(jobs[-1].end)
        for job in jobs:
            job.wait_for(all_train)
        with concurrent.futures.ThreadPoolExecutor() as threads:
            asked = [threads.submit(kineto, job, job.enough.with_name("steps"), "--steps", "2") for job in jobs]
            manifests = [request.result() for request in asked]
    for manifest in manifests:
        assert [rank["status"] for rank in manifest["ranks"]] == ["written"] * RANKS, manifest
        assert manifest["same_steps"] is True, manifest
    assert len({rank["pid"] for manifest in manifests for rank in manifest["ranks"]}) == 2 * RANKS


def test_a_job_trains_as_before_where_no_daemon_answers(tmp_path, environment):
    with tempfile.TemporaryDirectory(prefix="k-", dir="/tmp") as sockets:
        nobody = {**environment, "KINETO_IPC_SOCKET_DIR": sockets, "XPU_TOP_KINETO_SOCKET": "off"}
        job = Job("torchrun", tmp_path, nobody)
        try:
            job.wait_for(all_train)
        finally:
            assert job.end() == 0
