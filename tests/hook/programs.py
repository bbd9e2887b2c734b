"""Training loops that mark no steps, in common shapes. Each program counts its own steps."""

import os
import sys
import time
from pathlib import Path

from gpu import (
    RANK,
    WORLD,
    Group,
    all_gather,
    all_reduce,
    capture,
    communicator,
    gemm_ex,
    hold,
    kernel,
    ok,
    receive,
    reduce_scatter,
    send,
    sync,
)

enough = Path(os.environ["RENDEZVOUS"], "enough")
comm = communicator() if WORLD > 1 else None


def forward(blocks):
    for _ in range(blocks):
        ok(gemm_ex(512, 512, 512))
        ok(kernel(1, 64))


def backward(blocks, bucket=None):
    for _ in range(blocks):
        ok(gemm_ex(512, 512, 512, b=1))
        ok(gemm_ex(512, 512, 512, a=1))
        ok(kernel(2, 64))
        if bucket:
            ok(all_reduce(comm, bucket))


def loss():
    ok(kernel(3, 8))
    ok(kernel(4, 8))


def optimizer(parameters):
    for _ in range(parameters):
        ok(kernel(5, 32))


def log_entry(number, every=10):
    """Reduces a logged figure in every `every`th step."""
    if number % every == 0:
        ok(kernel(6))
        if comm:
            ok(all_reduce(comm, 1))
        sync()


def evaluate(number, every, batches, blocks):
    if number % every == 0:
        for _ in range(batches):
            forward(blocks)
        sync()


def equal_blocks(number):
    forward(8)
    backward(8, 1 << 20)
    optimizer(8)
    sync()
    time.sleep(0.01)


def accumulates(number):
    for _ in range(4):
        forward(6)
        loss()
        backward(6, 1 << 20)
        time.sleep(0.003)
    optimizer(12)
    log_entry(number)
    evaluate(number, 20, 5, 6)


def waits_every_8(number):
    forward(12)
    loss()
    backward(12)
    optimizer(24)
    for _ in range(6):
        ok(gemm_ex(4096, 4096, 4096))
    if number % 8 == 0:
        sync()
        time.sleep(0.05)


def alone(number):
    forward(12)
    loss()
    backward(12)
    optimizer(24)
    log_entry(number)
    evaluate(number, 50, 10, 12)
    time.sleep(0.01)


def pipeline(number):
    """Forward and backward passes alternate, on two stages."""
    other = 1 - RANK
    if RANK == 0:
        forward(4)
        ok(send(comm, 1 << 20, other))
        for _ in range(3):
            forward(4)
            with Group():
                ok(send(comm, 1 << 20, other))
                ok(receive(comm, 1 << 20, other))
            backward(4)
        ok(receive(comm, 1 << 20, other))
        backward(4)
    else:
        ok(receive(comm, 1 << 20, other))
        for micro_batch in range(4):
            forward(3)
            loss()
            backward(3)
            if micro_batch < 3:
                with Group():
                    ok(send(comm, 1 << 20, other))
                    ok(receive(comm, 1 << 20, other))
        ok(send(comm, 1 << 20, other))
    optimizer(8)
    sync()
    time.sleep(0.01)


def two_phases(number):
    for judges in (True, False):
        forward(4)
        forward(0 if judges else 3)
        loss()
        backward(4)
        ok(kernel(7 if judges else 8, 32))
    sync()
    time.sleep(0.01)


def other_lengths(number):
    length = 64 * (1 + number * 7919 % 97)
    for _ in range(6):
        ok(gemm_ex(512, length, 512))
        ok(kernel(1, length))
    loss()
    for _ in range(6):
        ok(gemm_ex(512, length, 512, b=1))
        ok(gemm_ex(512, 512, length, a=1))
        ok(kernel(2, length))
    optimizer(12)
    sync()
    time.sleep(0.01)


def alternates(number):
    """The number of repetitions that make a step cannot be determined."""
    for _ in range(8):
        ok(gemm_ex(512, 512, 512))
        ok(all_reduce(comm, 1 << 20))
    sync()
    time.sleep(0.01)


def norms(number):
    """Each step reduces the norm of the gradients. Every tenth also reduces a loss of the same size."""
    forward(6)
    loss()
    backward(6, 1 << 20)
    ok(all_reduce(comm, 1))
    optimizer(12)
    if number % 10 == 0:
        ok(all_reduce(comm, 1))
        sync()
    time.sleep(0.01)


def tensor_parallel(number):
    """Evaluations make the same reductions as steps."""

    def reduced(blocks):
        for _ in range(6):
            blocks(1)
            ok(all_reduce(comm, 1 << 20))

    reduced(forward)
    loss()
    reduced(backward)
    optimizer(12)
    if number % 40 == 0:
        for _ in range(6):
            reduced(forward)
        sync()
    time.sleep(0.02)


def fully_sharded(number):
    """A step gathers parameters twice and scatters gradients once. Evaluations gather too."""

    def gathered(blocks, scatters=False):
        for _ in range(6):
            ok(all_gather(comm, 1 << 18))
            blocks(1)
            if scatters:
                ok(reduce_scatter(comm, 1 << 18))

    gathered(forward)
    loss()
    gathered(backward, scatters=True)
    optimizer(12)
    if number % 20 == 0:
        for _ in range(5):
            gathered(forward)
        sync()
    time.sleep(0.01)


def answers(number):
    """A model that generates tokens for batches of requests. It counts batches."""
    batch, tokens = 1 + number * 7919 % 16, 3 + number * 104_729 % 29
    for token in range(tokens):
        rows = batch * (64 if token == 0 else 1)
        for _ in range(6):
            ok(gemm_ex(1536, rows, 512))
            ok(kernel(1, 64 + token))
            ok(gemm_ex(512, rows, 512))
            ok(gemm_ex(2048, rows, 512))
            ok(kernel(2, 64))
            ok(gemm_ex(512, rows, 2048))
        ok(gemm_ex(8192, batch, 512))
        for sampling in (3, 4, 6, 7, 8):
            ok(kernel(sampling, 8))
        sync()
        time.sleep(0.002)


def launches(number):
    forward(6)
    backward(6)
    optimizer(12)


def launches_a_graph_after_five(number, graphs=[]):  # noqa: B006
    """As JAX does: the first steps launch the same work in another way."""
    if number > 5 and not graphs:
        graphs.append(capture(lambda: launches(number)))
    if graphs:
        ok(graphs[0]())
    else:
        launches(number)
    sync()
    time.sleep(0.01)


def train(step):
    """Runs until the test has seen enough. Then all ranks stop after the same step."""
    number, done = 0, []
    last = Path(os.environ["RENDEZVOUS"], "last")
    while not last.exists() or number < int(last.read_text()):
        number += 1
        step(number)
        done.append((time.time(), number))
        if RANK == 0 and enough.exists() and not last.exists():
            # The other ranks are at most a few steps ahead.
            unfinished = last.with_suffix(".new")
            unfinished.write_text(str(number + 50))
            unfinished.rename(last)
    sync()
    for at, number in done:
        print(at, number)
    sys.stdout.flush()
    hold()
