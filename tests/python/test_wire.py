"""A client in another language, written from docs/wire-format.md, reads a live job."""

import pathlib

import zmq
from conftest import running_demo
from page import Client
from wire import decode, request_snapshot

PATIENCE_MS = 20_000


def receive(socket):
    assert socket.poll(PATIENCE_MS), "nothing came"
    return socket.recv_multipart()


def snapshot_with_a_job(control):
    """Asks repeatedly until the collector knows the ranks."""
    while True:
        control.send(request_snapshot())
        _, kind, body = decode(receive(control)[-1])
        assert kind == 33
        if body["jobs"] and len(body["jobs"][0]["ranks"]) == 2:
            return body


def test_a_foreign_reader_understands_snapshot_and_digests():
    with running_demo("--ranks", "2", "--nodes", "1", "--steps", "400") as base, zmq.Context() as context:
        with context.socket(zmq.DEALER) as control, context.socket(zmq.SUB) as data:
            control.linger = data.linger = 0
            control.connect(f"tcp://127.0.0.1:{base + 2}")
            snapshot = snapshot_with_a_job(control)
            job = snapshot["jobs"][0]
            assert snapshot["base_port"] == base
            assert [rank["info"]["rank"] for rank in job["ranks"]] == [0, 1]
            data.connect(f"tcp://127.0.0.1:{base + 1}")
            data.subscribe(f"{job['job']}/o")
            heard = []
            while len(heard) < 3:
                topic, frame = receive(data)
                assert topic == f"{job['job']}/o".encode()
                envelope, kind, body = decode(frame)
                assert kind == 64
                heard.append((envelope["number"], body["ranks"]))
            numbers = [number for number, _ in heard]
            assert numbers == sorted(set(numbers))
            for rank in heard[-1][1]:
                assert rank["world_size"] == 2
                assert rank["step"] > 0
                tflops = rank["gemm_timed_flops"] / rank["gemm_timed_for"] / 1e3
                assert abs(tflops / 500 - 1) < 0.03


def test_a_client_made_of_the_page_alone_reads_and_writes_every_frame():
    client = Client()
    rest = (pathlib.Path(__file__).parent / "frames.bin").read_bytes()
    kinds = set()
    while rest:
        length = 12 + int.from_bytes(rest[8:12], "little")
        frame, rest = rest[:length], rest[length:]
        kind, envelope, body = client.read(frame)
        assert client.write(kind, envelope, body) == frame, f"{kind}: {body}"
        kinds.add(kind)
    assert kinds == set(client.kinds), "one of every kind on the page, and no other"
