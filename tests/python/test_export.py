"""A capture exported for other programs: read with Perfetto's own classes, and as JSON."""

import collections
import json
import subprocess

import pytest
from conftest import ROOT, running_demo
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

PROGRAM = ROOT / "target/release/xpu-top"
BEGIN, END = perfetto.TrackEvent.TYPE_SLICE_BEGIN, perfetto.TrackEvent.TYPE_SLICE_END
RANKS, STEPS = 4, 3


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    path = tmp_path_factory.mktemp("capture") / "c.bin"
    with running_demo("--ranks", str(RANKS), "--nodes", "2", "--steps", "100000") as base:
        where = ["--hosts", "127.0.0.[1-2]", "--base-port", str(base)]
        steps = 0
        while not steps or steps < 3:
            answer = subprocess.run([PROGRAM, "status", "--json", "--now", *where], capture_output=True, text=True)
            seen = json.loads(answer.stdout or "{}")
            ranks = (seen.get("coverage") or {}).get("ranks_seen")
            steps = (seen.get("steps") or {}).get("min") if ranks == RANKS else 0
        subprocess.run([PROGRAM, "capture", "--steps", str(STEPS), "-o", path, "--wait", "60", *where], check=True)
    return path


@pytest.fixture(scope="module")
def report(capture):
    return json.loads(subprocess.run([PROGRAM, "report", "--json", capture], capture_output=True, check=True).stdout)


def of_all_steps(report, *kinds):
    steps = [step for rank in report["ranks"] for step in rank["steps"]]
    return sum(step["operations"].get(kind, 0) for step in steps for kind in kinds)


def test_perfetto_reads_it(capture, report, tmp_path):
    path = tmp_path / "c.pftrace"
    subprocess.run([PROGRAM, "export", capture, "--perfetto", path], check=True)
    trace = perfetto.Trace()
    trace.ParseFromString(path.read_bytes())
    tracks, open_slices, last = {}, collections.defaultdict(list), collections.defaultdict(int)
    slices, flows, curves = collections.Counter(), collections.defaultdict(list), collections.defaultdict(list)
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id == 1
        if packet.HasField("track_descriptor"):
            assert packet.track_descriptor.uuid not in tracks
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            continue
        event = packet.track_event
        assert event.track_uuid in tracks, "every slice is on a declared track"
        assert packet.timestamp >= last[event.track_uuid], "times of a track never go back"
        last[event.track_uuid] = packet.timestamp
        if event.type == perfetto.TrackEvent.TYPE_COUNTER:
            track = tracks[event.track_uuid]
            curves[track.name, track.counter.unit_name].append(event.double_counter_value)
        elif event.type == BEGIN:
            open_slices[event.track_uuid].append(event.name)
            slices[event.name.split(" ")[0]] += 1
            for flow in [*event.flow_ids, *event.terminating_flow_ids]:
                flows[flow].append(tracks[tracks[event.track_uuid].parent_uuid].process.process_name)
            assert len(event.terminating_flow_ids) <= 1
        else:
            assert event.type == END
            open_slices[event.track_uuid].pop()
    assert not any(open_slices.values()), "every slice ends"
    names = [track.process.process_name for track in tracks.values() if track.HasField("process")]
    assert [name.split(" on ")[0] for name in names] == [f"rank {rank}" for rank in range(RANKS)]
    assert slices["gemm"] == of_all_steps(report, "gemm") == RANKS * STEPS * 84
    assert slices["AllReduce"] == of_all_steps(report, "collective")
    assert slices["step"] == RANKS * STEPS
    assert len(flows) == STEPS * 4
    assert set(curves) == {("GEMMs", "TFLOPS"), ("NCCL bus", "GB/s")}
    assert max(curves["GEMMs", "TFLOPS"]) == pytest.approx(report["gemms"][0]["tflops"], rel=0.01)
    assert all(min(values) == 0 for values in curves.values()), "nothing runs at the end"
    assert all(sorted(ranks) == sorted(names) for ranks in flows.values()), "each collective meets all ranks"


def test_chrome_reads_it(capture, report, tmp_path):
    path = tmp_path / "c.json"
    subprocess.run([PROGRAM, "export", capture, "--chrome", path], check=True)
    events = json.loads(path.read_text())["traceEvents"]
    by_phase = collections.Counter(event["ph"] for event in events)
    assert by_phase["s"] == by_phase["f"] == STEPS * 4
    assert by_phase["t"] == STEPS * 4 * (RANKS - 2)
    named = {(event["pid"], event.get("tid")) for event in events if event["ph"] == "M"}
    done = [event for event in events if event["ph"] == "X"]
    assert all((event["pid"], event["tid"]) in named and event["ts"] >= 0 and event["dur"] >= 0 for event in done)
    assert len(done) == sum(rank["operations"] for rank in report["ranks"]) + RANKS * STEPS


def test_an_impossible_export_is_refused_with_the_reason(tmp_path):
    (tmp_path / "foreign").write_bytes(b"something else")
    for arguments in (["--chrome", tmp_path / "x"], []):
        done = subprocess.run([PROGRAM, "export", tmp_path / "foreign", *arguments], capture_output=True, text=True)
        assert done.returncode == 64
        assert done.stderr.startswith("xpu-top: ")
