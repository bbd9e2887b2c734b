"""A reader in another language, written from docs/recording-format.md, reads a recording of a live job."""

import subprocess

from conftest import ROOT, running_demo
from recording import BLOCK_HEADER, INDEX, Recording
from wire import decode


def test_a_foreign_reader_understands_a_recording(tmp_path):
    file = tmp_path / "demo.xpurec"
    with running_demo("--ranks", "2", "--nodes", "1", "--steps", "400") as base:
        command = [
            ROOT / "target/release/xpu-top",
            "record",
            "-o",
            file,
            "--hosts",
            "127.0.0.1",
            "--base-port",
            str(base),
            "--for",
            "4s",
        ]
        subprocess.run(command, check=True, timeout=30)
    recording = Recording(file)
    assert recording.hosts == [f"127.0.0.1:{base}"] or recording.hosts == ["127.0.0.1"]
    assert recording.index() == [block["at"] for block in recording.blocks if block["kind"] != INDEX]
    frames = [(when, rank, *decode(frame)) for when, rank, frame in recording.frames()]
    assert sum(block["frames"] for block in recording.blocks if block["kind"] != INDEX) == len(frames)
    kinds = {kind for _, _, _, kind, _ in frames}
    assert {33, 64, 65} <= kinds, "snapshots, digests and details"
    assert all((rank is not None) == (kind == 65) for _, rank, _, kind, _ in frames)
    assert {rank for _, rank, _, kind, _ in frames if kind == 65} == {0, 1}
    overview = [when for when, _, _, kind, _ in frames if kind != 65]
    assert overview == sorted(overview)
    assert recording.damage == []

    # One file is cut in the middle of a block, and has a flipped bit in another block.
    second, last = [block for block in recording.blocks if block["kind"] != INDEX][1:3]
    torn = bytearray(recording.bytes[: last["at"] + BLOCK_HEADER + 5])
    torn[second["at"] + BLOCK_HEADER + 3] ^= 1
    file.write_bytes(torn)
    torn = Recording(file)
    assert torn.index() is None
    assert len(list(torn.frames())) == recording.blocks[0]["frames"]
    assert len(torn.damage) == 2
