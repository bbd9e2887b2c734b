#!/usr/bin/env python3
"""One rank of a training job: makes the same CUDA and NCCL calls as PyTorch DDP, or with --stages as a pipeline of
stages with several replicas, without PyTorch.

Reads RANK, WORLD_SIZE and LOCAL_RANK as torchrun sets them. Every CUDA call is resolved in the global scope, so
a preloaded library intercepts it, as in a real job. Runs on the stand-in libraries of simgpu.
"""

import argparse
import ctypes
import os
import random
import signal
import statistics
import sys
import threading
import time
from ctypes import c_int
from pathlib import Path

import pipeline
from libraries import Cuda, Dim3, UniqueId

BF16, FLOAT, COMPUTE_32F = 14, 0, 68
NCCL_BF16, NCCL_SUM = 9, 0
NON_BLOCKING, NO_TIMING = 1, 2
HOST_TO_DEVICE, DEVICE_TO_HOST = 1, 2

# One GEMM is 2 * 8192 * 8192 * 4096 operations: 1.1 ms at 500 TFLOPS.
M, N, K = 8192, 8192, 4096
BUCKETS, BUCKET_ELEMENTS = 4, 32 * 1024 * 1024
BATCH_BYTES = 16 * 1024 * 1024
LOAD_S = 0.002
RENDEZVOUS_DEADLINE_S = 120
# How long a stopped rank may still be inside a call before its communicator is aborted.
GRACE_S = 1.0


class Stop(BaseException):
    """A signal has asked this process to end."""


class Dataset:
    """Samples that take a moment to read."""

    def __init__(self, seed, slow_s, hang_step):
        self.random = random.Random(seed)
        self.slow_s = slow_s
        self.hang_step = hang_step

    def __getitem__(self, index):
        time.sleep(LOAD_S * self.random.uniform(0.9, 1.1) + self.slow_s)
        if index == self.hang_step:
            wait_for_shard_that_never_comes()
        return index


def wait_for_shard_that_never_comes():
    """The function in which a hung rank stays."""
    while True:
        time.sleep(0.5)


def loader(dataset):
    """Yields samples without end."""
    index = 0
    while True:
        yield dataset[index]
        index += 1


class Model:
    """Blocks of two linear layers; each GEMM takes at least a millisecond."""

    def __init__(self, cuda, layers, stream):
        self.cuda, self.layers, self.stream = cuda, layers, stream
        self.blas = cuda.made(cuda.cublasCreate_v2)
        cuda.cublasSetStream_v2(self.blas, stream)
        self.blas_lt = cuda.made(cuda.cublasLtCreate)
        self.description = cuda.made(cuda.cublasLtMatmulDescCreate, COMPUTE_32F, FLOAT)
        self.layouts_of = {}
        self.resize(N)
        self.a, self.b, self.c = (cuda.made(cuda.cudaMalloc, 2 * size) for size in (M * K, K * N, M * N))
        self.one = ctypes.byref(ctypes.c_float(1.0))
        self.code = ctypes.create_string_buffer(64)
        self.grid = Dim3(1024, 1, 1)
        self.block = Dim3(256, 1, 1)

    def resize(self, tokens):
        """From now on, a batch has this many tokens."""
        self.tokens = tokens
        if tokens not in self.layouts_of:
            shapes = ((M, K), (K, tokens), (M, tokens))
            create = self.cuda.cublasLtMatrixLayoutCreate
            self.layouts_of[tokens] = [self.cuda.made(create, BF16, rows, cols, rows) for rows, cols in shapes]

    def matmul(self):
        self.cuda.cublasGemmEx(
            self.blas,
            0,
            0,
            M,
            self.tokens,
            K,
            self.one,
            self.a,
            BF16,
            M,
            self.b,
            BF16,
            K,
            self.one,
            self.c,
            BF16,
            M,
            COMPUTE_32F,
            -1,
        )

    def linear(self):
        a, b, c = self.layouts_of[self.tokens]
        self.cuda.cublasLtMatmul(
            self.blas_lt,
            self.description,
            self.one,
            self.a,
            a,
            self.b,
            b,
            self.one,
            self.c,
            c,
            self.c,
            c,
            None,
            None,
            0,
            self.stream,
        )

    def elementwise(self):
        self.cuda.cudaLaunchKernel(self.code, self.grid, self.block, None, 0, self.stream)

    def forward(self):
        for _ in range(self.layers):
            self.linear()
            self.elementwise()
            self.matmul()
            self.elementwise()

    def backward(self, gradient_ready):
        for layer in reversed(range(self.layers)):
            for _ in range(2):
                self.elementwise()
                self.matmul()
                self.matmul()
            gradient_ready(layer)


class Reducer:
    """Reduces gradients in buckets on a separate stream while the backward pass continues, as DDP does."""

    def __init__(self, cuda, communicator, layers, compute):
        self.cuda, self.communicator, self.layers, self.compute = cuda, communicator, layers, compute
        self.stream = cuda.made(cuda.cudaStreamCreateWithFlags, NON_BLOCKING)
        self.ready, self.done = (
            [cuda.made(cuda.cudaEventCreateWithFlags, NO_TIMING) for _ in range(BUCKETS)] for _ in range(2)
        )
        self.gradients = cuda.made(cuda.cudaMalloc, 2 * BUCKET_ELEMENTS)

    def gradient_ready(self, layer):
        """Called per layer, the last layer first; reduces a bucket once its gradients are complete."""
        finished = self.layers - layer
        for bucket in range(BUCKETS):
            if finished == max(1, (bucket + 1) * self.layers // BUCKETS):
                self.all_reduce(bucket)

    def all_reduce(self, bucket):
        cuda = self.cuda
        cuda.cudaEventRecord(self.ready[bucket], self.compute)
        cuda.cudaStreamWaitEvent(self.stream, self.ready[bucket], 0)
        cuda.ncclAllReduce(
            self.gradients,
            self.gradients,
            BUCKET_ELEMENTS,
            NCCL_BF16,
            NCCL_SUM,
            self.communicator,
            self.stream,
        )
        cuda.cudaEventRecord(self.done[bucket], self.stream)

    def finish(self):
        for event in self.done:
            self.cuda.cudaStreamWaitEvent(self.compute, event, 0)


def optimizer_step(model):
    for _ in range(model.layers):
        model.elementwise()


def read_loss(cuda, model, host):
    cuda.cudaMemcpyAsync(host, model.c, 4, DEVICE_TO_HOST, model.stream)
    cuda.cudaStreamSynchronize(model.stream)


def train_step(cuda, batches, model, reducer, host):
    next(batches)
    cuda.cudaMemcpyAsync(model.a, host, BATCH_BYTES, HOST_TO_DEVICE, model.stream)
    model.forward()
    model.backward(reducer.gradient_ready)
    reducer.finish()
    optimizer_step(model)
    read_loss(cuda, model, host)


class PipelineStage:
    """One stage of a pipeline, and its replicas."""

    def __init__(self, cuda, world, place, model, lengths):
        self.cuda, self.world, self.place, self.model, self.lengths = cuda, world, place, model, lengths
        replica, stage = self.split(place.replica), self.split(place.stage)
        self.communicators = [replica, stage]
        self.neighbours = pipeline.Neighbours(cuda, replica, place, model.b, model.stream)
        self.reducer = Reducer(cuda, stage, model.layers, model.stream)

    def split(self, color):
        return self.cuda.made(lambda made: self.cuda.ncclCommSplit(self.world, color, 0, made, None))

    def train_step(self, batches, host):
        cuda, model = self.cuda, self.model
        next(batches)
        if self.place.is_first:
            cuda.cudaMemcpyAsync(model.a, host, BATCH_BYTES, HOST_TO_DEVICE, model.stream)
        # With one replica, the reduction is only a copy.
        pipeline.train_microbatches(model, self.neighbours, self.lengths.of_step(), self.reducer.gradient_ready)
        self.reducer.finish()
        # The norm of all gradients.
        cuda.ncclAllReduce(model.c, model.c, 1, NCCL_BF16, NCCL_SUM, self.world, model.stream)
        optimizer_step(model)
        read_loss(cuda, model, host)


def rendezvous(cuda, folder, rank):
    """The job's unique id: rank 0 creates it and writes it to `folder`, where the other ranks read it."""
    path = Path(folder) / "unique_id"
    unique_id = UniqueId()
    if rank == 0:
        cuda.ncclGetUniqueId(ctypes.byref(unique_id))
        unfinished = path.with_suffix(".new")
        unfinished.write_bytes(bytes(unique_id))
        os.replace(unfinished, path)
        return unique_id
    deadline = time.monotonic() + RENDEZVOUS_DEADLINE_S
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank 0 wrote no {path} in {RENDEZVOUS_DEADLINE_S} s")
        time.sleep(0.02)
    return UniqueId.from_buffer_copy(path.read_bytes())


def abort(cuda, communicators):
    for communicator in communicators:
        try:
            cuda.ncclCommAbort(communicator)
        except RuntimeError:
            pass  # Another thread has ended it.


def stop_on_signals(cuda, communicators):
    """Makes SIGTERM and SIGINT raise Stop, even within a collective that other ranks never enter."""

    def stop(_number, _frame):
        raise Stop

    def abort_late():
        os.read(reading, 1)
        time.sleep(GRACE_S)
        abort(cuda, communicators)

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    threading.Thread(target=abort_late, name="abort-late", daemon=True).start()
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)


class NoTracer:
    def step(self):
        pass


def make_tracer(rank):
    try:
        from xpu_top import Tracer
    except ImportError:
        print(f"rank {rank}: no xpu_top module, steps are not reported", file=sys.stderr)
        return NoTracer()
    return Tracer()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=0, help="steps to train; 0 is for ever")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rendezvous", required=True, metavar="DIR", help="an empty folder all ranks see")
    parser.add_argument("--layers", type=int, default=14, help="blocks of the model; 14 make a step of 100 ms")
    parser.add_argument("--stages", type=int, default=1, help="stages of a pipeline; its replicas share the ranks")
    parser.add_argument("--more-layers", type=int, default=0, metavar="N", help="blocks that this rank has in addition")
    parser.add_argument("--long-sequences", action="store_true", help="microbatches have different lengths")
    parser.add_argument("--slow-host", type=float, default=0, metavar="MS", help="time this rank's loader loses a step")
    parser.add_argument("--hang", type=int, default=None, metavar="STEP", help="this rank's loader never returns there")
    parser.add_argument("--unmarked", action="store_true", help="mark no steps: they can only be detected")
    return parser.parse_args()


def main():
    args = arguments()
    rank, world, local = (
        int(os.environ.get(name, default)) for name, default in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0))
    )
    cuda = Cuda()
    count = c_int()
    cuda.cudaGetDeviceCount(ctypes.byref(count))
    cuda.cudaSetDevice(local % count.value)
    communicator = cuda.made(cuda.ncclCommInitRank, world, rendezvous(cuda, args.rendezvous, rank), rank)
    tracer = NoTracer() if args.unmarked else make_tracer(rank)
    compute = cuda.made(cuda.cudaStreamCreateWithFlags, NON_BLOCKING)
    communicators = [communicator]
    if args.stages > 1:
        place = pipeline.Place(rank, world, args.stages)
        model = Model(cuda, max(1, args.layers // args.stages) + args.more_layers, compute)
        # A step takes about 200 ms with any number of stages.
        lengths = pipeline.Lengths(args.seed, place, N * args.stages // 8, args.long_sequences)
        stage = PipelineStage(cuda, communicator, place, model, lengths)
        communicators += stage.communicators
    else:
        model = Model(cuda, args.layers + args.more_layers, compute)
        reducer = Reducer(cuda, communicator, args.layers, compute)
    batches = loader(Dataset(args.seed * 1_000_003 + rank, args.slow_host / 1e3, args.hang))
    host = ctypes.create_string_buffer(4)
    took = []
    try:
        stop_on_signals(cuda, communicators)
        while not args.steps or len(took) < args.steps:
            before = time.monotonic()
            if args.stages > 1:
                stage.train_step(batches, host)
            else:
                train_step(cuda, batches, model, reducer, host)
            tracer.step()
            took.append(time.monotonic() - before)
        for one in communicators:
            cuda.ncclCommDestroy(one)
        end = "done"
    except Stop:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        end = "stopped"
        abort(cuda, communicators)
    median = statistics.median(took) * 1e3 if took else 0.0
    # One write, so that the lines of many ranks do not mix.
    sys.stdout.write(f"rank {rank}: {end} after {len(took)} steps, {median:.1f} ms a step\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
