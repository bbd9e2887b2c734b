"""The hook's own ZMTP and pyzmq exchange messages, through the example `dealer`. Each line of its input and output is
a message."""

import contextlib
import subprocess

import pytest
import zmq
from conftest import ROOT

PATIENCE_MS = 20_000


@pytest.fixture
def bound(tmp_path):
    """Yields a function that binds a socket of a kind, and returns the socket and its path."""
    path = tmp_path / "line"
    with zmq.Context() as context, contextlib.ExitStack() as open_sockets:

        def bind(kind, **options):
            socket = open_sockets.enter_context(context.socket(kind))
            socket.linger = 0
            for name, value in options.items():
                setattr(socket, name, value)
            socket.bind(f"ipc://{path}")
            return socket, path

        yield bind


@contextlib.contextmanager
def dealer(path):
    """The example, connected to the path, until the body ends."""
    program = ROOT / "target/release/examples/dealer"
    assert program.exists(), "no example: run `cargo build --release -p xpu-net --example dealer`"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([program, path], **pipes) as running:
        try:
            yield running
        finally:
            running.kill()


def say(running, *lines):
    running.stdin.write(b"".join(line + b"\n" for line in lines))
    running.stdin.flush()


def receive(socket):
    assert socket.poll(PATIENCE_MS), "nothing came"
    return socket.recv_multipart()


def test_messages_of_all_lengths_come_and_go(bound):
    router, path = bound(zmq.ROUTER, router_mandatory=1)
    with dealer(path) as running:
        for length in [0, 1, 255, 256, 65_536, 1 << 20]:
            say(running, b"x" * length)
            address, message = receive(router)
            assert message == b"x" * length
            router.send_multipart([address, b"y" * length])
            assert running.stdout.readline() == b"y" * length + b"\n"


def test_a_thousand_messages_come_and_go_in_order(bound):
    router, path = bound(zmq.ROUTER, router_mandatory=1)
    expected = [str(number).encode() for number in range(1_000)]
    with dealer(path) as running:
        say(running, *expected)
        came = [receive(router) for _ in expected]
        assert [message for _, message in came] == expected
        for message in came:
            router.send_multipart(message)
        assert [running.stdout.readline() for _ in expected] == [message + b"\n" for message in expected]


@pytest.mark.parametrize("kind", [zmq.ROUTER, zmq.DEALER, zmq.REP])
def test_all_peers_that_fit_shake_hands(bound, kind):
    peer, path = bound(kind)
    with peer.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED) as watched, dealer(path):
        assert watched.poll(PATIENCE_MS), "no handshake"


def test_a_dealer_is_understood(bound):
    peer, path = bound(zmq.DEALER)
    with dealer(path) as running:
        say(running, b"there")
        assert receive(peer) == [b"there"]
        peer.send(b"back")
        assert running.stdout.readline() == b"back\n"


def test_heartbeats_keep_the_line(bound):
    options = {"heartbeat_ivl": 20, "heartbeat_timeout": 4_000}
    router, path = bound(zmq.ROUTER, **options)
    with dealer(path) as running, router.get_monitor_socket(zmq.EVENT_DISCONNECTED) as watched:
        say(running, b"first")
        address, _ = receive(router)
        assert not watched.poll(4_500), "the line broke off"
        router.send_multipart([address, b"still here"])
        assert running.stdout.readline() == b"still here\n"


def test_it_ends_with_its_peer(bound):
    router, path = bound(zmq.ROUTER)
    with dealer(path) as running:
        say(running, b"first")
        receive(router)
        router.close()
        assert running.wait(PATIENCE_MS / 1e3) == 0


def test_a_peer_that_does_not_fit_is_named(bound):
    _, path = bound(zmq.PUB)
    with dealer(path) as running:
        assert running.wait(PATIENCE_MS / 1e3) == 1
        assert b'SocketType("PUB")' in running.stderr.read()
