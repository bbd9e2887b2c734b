//! Memory that is held, copies, and the time that threads were blocked.

use xpu_wire::{
    frame::{BlockingCall, Copies, Direction},
    ledger::Call,
};

use crate::{Job, reads};

#[test]
fn memory_held_is_what_the_program_holds() {
    let job = Job::alone(
        "gemm=1",
        "
def allocate(name, bytes, *more):
    return made(getattr(process, name), c_size_t(bytes), *more)
one_mib = 1 << 20
kept = allocate('cudaMalloc', 3 * one_mib)
freed = [allocate('cudaMalloc', 5 * one_mib) for _ in range(4)]
for address in freed: ok(process.cudaFree(address))
queued = allocate('cudaMallocAsync', one_mib, stream)
pooled = allocate('cudaMallocFromPoolAsync', 2 * one_mib, None, stream)
ok(process.cudaFreeAsync(queued, stream))
managed = allocate('cudaMallocManaged', one_mib, c_uint(1))
pitched, pitch = c_void_p(), c_size_t()
ok(process.cudaMallocPitch(byref(pitched), byref(pitch), c_size_t(1000), c_size_t(10)))
assert pitch.value == 1024
pinned = allocate('cudaHostAlloc', 7 * one_mib, c_uint(0))
also = allocate('cudaMallocHost', 2 * one_mib)
ok(process.cudaFreeHost(also))
ok(process.cudaFree(None))
assert process.cudaFree(c_void_p(0x1234)) != 0
assert process.cudaMalloc(None, c_size_t(8)) != 0
switch(0)
ok(process.cudaFree(managed))
switch(1)
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let memory = &said.summaries.last().unwrap().memory;
    let before = 1 << 30;
    assert_eq!(memory.held, before + (3 << 20) + (2 << 20) + 10240);
    assert_eq!(memory.peak, before + (23 << 20));
    assert_eq!((memory.host_held, memory.allocations, memory.frees), (7 << 20, 1 + 11, 7));
    assert_eq!(said.summaries.last().unwrap().hook.blind.len(), 0);
    job.end();
}

/// The driver's functions and the runtime's free each other's memory.
#[test]
fn memory_of_the_driver_is_held_too() {
    let job = Job::alone(
        "gemm=1",
        "
one_mib = 1 << 20
def allocate(name, bytes, *more):
    return made(getattr(process, name), c_size_t(bytes), *more)
kept = allocate('cuMemAlloc_v2', 3 * one_mib)
managed = allocate('cuMemAllocManaged', 5 * one_mib, c_uint(1))
ok(process.cuMemFree_v2(managed))
queued = allocate('cuMemAllocAsync', 7 * one_mib, stream)
pooled = allocate('cuMemAllocFromPoolAsync', 9 * one_mib, None, stream)
ok(process.cuMemFreeAsync(queued, stream))
pitched, pitch = c_void_p(), c_size_t()
ok(process.cuMemAllocPitch_v2(byref(pitched), byref(pitch), c_size_t(1000), c_size_t(10), c_uint(4)))
ok(process.cudaFree(allocate('cuMemAlloc_v2', 11 * one_mib)))
ok(process.cuMemFree_v2(allocate('cudaMalloc', 13 * one_mib)))
assert process.cuMemFree_v2(c_void_p(0x1234)) != 0
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let memory = &said.summaries.last().unwrap().memory;
    assert_eq!(memory.held, (1 << 30) + (12 << 20) + 10240);
    assert_eq!((memory.allocations, memory.frees), (1 + 7, 4));
    assert_eq!(said.summaries.last().unwrap().hook.blind.len(), 0);
    job.end();
}

/// As PyTorch's expandable segments do: by looked-up addresses. Memory on the host does not count.
#[test]
fn created_memory_is_held_until_its_last_handle_and_mapping() {
    let mut job = Job::alone(
        "gemm=1",
        "
two_mib = 2 << 20
driver = ctypes.CDLL('libcuda.so.1')
def on(location, number): return (c_int * 8)(1, 0, location, number)
def create(pieces, properties=on(1, 0)):
    return made(driver.cuMemCreate, c_size_t(pieces * two_mib), properties, c_uint64(0))
space = made(driver.cuMemAddressReserve, c_size_t(64 * two_mib), c_size_t(0), c_uint64(0), c_uint64(0)).value
def place(piece): return c_uint64(space + piece * two_mib)
def map(piece, pieces, handle):
    ok(driver.cuMemMap(place(piece), c_size_t(pieces * two_mib), c_size_t(0), handle, c_uint64(0)))
def unmap(piece, pieces): return driver.cuMemUnmap(place(piece), c_size_t(pieces * two_mib))
kept, released_at_once, ended = create(3), create(5), create(7)
for at, pieces, handle in ((0, 3, kept), (3, 5, released_at_once), (8, 7, ended)): map(at, pieces, handle)
ok(driver.cuMemRelease(released_at_once))
assert driver.cuMemRelease(c_uint64(99)) != 0 and unmap(60, 2) != 0
ok(unmap(8, 7))
ok(driver.cuMemRelease(ended))
create(11, on(2, 0))
remote = create(1, on(1, 1))
step(1)
assert next_line() == 'on'
again = made(driver.cuMemRetainAllocationHandle, place(2))
ok(unmap(0, 8))
ok(driver.cuMemRelease(kept))
assert driver.cuMemCreate(byref(c_void_p()), c_size_t(1 << 50), on(1, 0), c_uint64(0)) == 2
step(2)
hold()",
    );
    let memory = |said: &xpu_tests::listener::Sender| said.summaries.last().unwrap().memory.clone();
    let said = job.after_step(0, 1);
    assert_eq!(memory(&said).held, (1 << 30) + ((3 + 5 + 1) << 21));
    assert_eq!(memory(&said).peak, (1 << 30) + ((3 + 5 + 7) << 21));
    assert_eq!((memory(&said).allocations, memory(&said).frees), (1 + 4, 1));
    job.ranks[0].write_line("on");
    let said = job.after_step(0, 2);
    assert_eq!(memory(&said).held, (1 << 30) + ((3 + 1) << 21), "one piece has a handle still");
    assert_eq!(said.summaries.last().unwrap().hook.blind.len(), 0);
    job.end();
}

/// The hook does not see NCCL's allocations. The program allocates in between.
#[test]
fn memory_of_nccl_is_the_drop_of_free_memory_in_its_calls() {
    let script = "
comm = communicator()
kept = made(process.cudaMalloc, c_size_t(5 << 20))
ok(all_reduce(comm, 1000))
sync()
step(1)
assert next_line() == 'on'
ok(process.ncclCommDestroy(comm))
step(2)
hold()";
    let mut job = Job::of(2, &[("SIMGPU_NCCL_MIB", "300")], script);
    let share = |job: &Job, rank, step| job.after_step(rank, step).summaries.last().unwrap().memory.nccl;
    assert_eq!([0, 1].map(|rank| share(&job, rank, 1)), [Some(300 << 20); 2]);
    job.ranks.iter_mut().for_each(|rank| rank.write_line("on"));
    assert_eq!([0, 1].map(|rank| share(&job, rank, 2)), [None; 2], "a communicator has ended");
    job.end();
}

#[test]
fn copies_are_counted_by_direction() {
    let job = Job::alone(
        "gemm=1",
        "
def size(bytes): return c_size_t(bytes)
for kind in (1, 1, 2): ok(process.cudaMemcpyAsync(memory, memory, size(100), kind, stream))
ok(process.cudaMemcpy(memory, memory, size(1000), 3))
ok(process.cudaMemcpy2D(memory, size(64), memory, size(64), size(60), size(5), 4))
ok(process.cudaMemcpy2DAsync(memory, size(64), memory, size(64), size(60), size(5), 0, stream))
ok(process.cudaMemcpyPeer(memory, 0, memory, 1, size(7)))
ok(process.cudaMemcpyPeerAsync(memory, 0, memory, 1, size(8), stream))
ok(process.cudaMemset(memory, 0, size(11)))
ok(process.cudaMemsetAsync(memory, 0, size(12), stream))
ok(process.cudaMemset2D(memory, size(64), 0, size(10), size(3)))
assert process.cudaMemcpy(memory, memory, size(1000), 99) != 0
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let memory = &said.summaries.last().unwrap().memory;
    let copies = [
        (Direction::HostToHost, 1, 300),
        (Direction::HostToDevice, 2, 200),
        (Direction::DeviceToHost, 1, 100),
        (Direction::DeviceToDevice, 1, 1000),
        (Direction::ByAddress, 1, 300),
        (Direction::PeerToPeer, 2, 15),
    ];
    assert_eq!(memory.copies, copies.map(|(direction, count, bytes)| Copies { direction, count, bytes }));
    assert_eq!((memory.sets, memory.set), (3, 11 + 12 + 30));
    let blocked = &said.summaries.last().unwrap().blocked;
    assert_eq!(blocked.len(), 1, "{blocked:?}");
    assert_eq!(
        (blocked[0].call, blocked[0].count),
        (BlockingCall::Copy, 4),
        "the refused one too held its thread"
    );
    job.end();
}

#[test]
fn time_in_waiting_calls_is_measured() {
    let job = Job::alone(
        "gemm=1",
        "
def work():
    for _ in range(10): ok(gemm_ex(8192, 8192, 8192))
work(); sync()
work(); ok(process.cudaDeviceSynchronize())
event = made(process.cudaEventCreateWithFlags, c_uint(2))
for _ in range(2):
    work(); ok(process.cudaEventRecord(event, stream)); ok(process.cudaEventSynchronize(event))
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let blocked = &said.summaries.last().unwrap().blocked;
    // A thread that has no core during a launch seems to wait in it.
    let waiting = blocked.iter().filter(|blocked| blocked.call != BlockingCall::Launch);
    let counts: Vec<_> = waiting.map(|blocked| (blocked.call, blocked.count)).collect();
    let expected = [
        (BlockingCall::StreamSynchronize, 2),
        (BlockingCall::DeviceSynchronize, 1),
        (BlockingCall::EventSynchronize, 2),
    ];
    assert_eq!(counts, expected);
    for blocked in blocked {
        assert!(blocked.longest.0 > 0 && blocked.longest <= blocked.waited, "{blocked:?}");
        assert!(blocked.longest.0 * blocked.count >= blocked.waited.0, "{blocked:?}");
    }
    job.end();
}

/// No collective is timed: the return of a waiting call shows that they are complete.
#[test]
fn a_returned_wait_proves_completion() {
    let script = "
comm = communicator()
for _ in range(5): ok(all_reduce(comm, 1000))
sync()
step(1)
assert next_line() == 'on'
for _ in range(3): ok(all_reduce(comm, 1000))
other = made(process.cudaStreamCreateWithFlags, c_uint(1))
ok(process.cudaStreamSynchronize(other))
step(2)
assert next_line() == 'on'
ok(process.cudaDeviceSynchronize())
step(3)
hold()";
    let mut job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1048576")], script);
    let completed = |job: &Job, rank| {
        let line = &job.ledger(rank).ledger().read().communicators[0];
        (line.enqueued, line.completed)
    };
    for (step, expected) in [(1, (5, 5)), (2, (8, 5)), (3, (8, 8))] {
        for rank in [0, 1] {
            job.after_step(rank, step);
            let (enqueued, completed) = completed(&job, rank);
            // In step 2 no call waited for the collectives, but the hook may find in other ways that they are
            // complete.
            assert_eq!(enqueued, expected.0, "step {step}");
            assert!(completed == expected.1 || step == 2, "step {step}: {completed}");
        }
        job.ranks.iter_mut().for_each(|rank| rank.write_line("on"));
    }
    job.end();
}

/// Rank 1 never enters the collective. Rank 0 waits in the stream's synchronization, and the ledger shows
/// this.
#[test]
fn the_ledger_shows_a_thread_that_waits_for_the_gpu() {
    let script = "
comm = communicator()
if RANK == 0:
    ok(all_reduce(comm, 1000))
    sync()
hold()";
    let job = Job::of(2, &[], script);
    let reading = reads(&job.ledger(0), "rank 0 waiting for its stream", |reading| {
        reading.threads.iter().any(|thread| thread.call == Call::StreamSynchronize)
    });
    assert_eq!(reading.communicators[0].completed, 0);
}
