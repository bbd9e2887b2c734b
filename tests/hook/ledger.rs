//! The ledger of a rank that hangs, waits, was stopped or is dead.

use std::time::Duration;

use xpu_tests::program::until;
use xpu_wire::{
    collective::Operation,
    id::{Pid, Step},
    ledger::{Call, Reading},
};

use crate::{Job, reads};

/// Rank 1 makes only five collectives. Rank 0 continues until NCCL blocks it.
#[test]
fn the_ledger_shows_hung_stopped_and_dead_ranks() {
    let script = "
comm = communicator()
for _ in range(5): ok(all_reduce(comm, 1 << 20))
sync()
step(3)
if RANK == 0:
    for _ in range(100000): ok(all_reduce(comm, 2 << 20))
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    let ledger = job.ledger(0);
    let hung = |reading: &Reading| reading.threads.iter().any(|thread| thread.call == Call::Collective);
    reads(&ledger, "rank 0 inside a collective", |reading| {
        hung(reading) && reading.communicators[0].completed == 5
    });
    // The rank stays inside the collective, and the hook's thread continues.
    let first = reads(&ledger, "a collective that does not return", |reading| {
        let thread = reading.threads.first().filter(|thread| thread.call == Call::Collective);
        thread.is_some_and(|thread| reading.heartbeat.since(thread.since) > Duration::from_millis(300))
    });
    let line = &first.communicators[0];
    assert_eq!((first.pid, first.step), (Pid(job.ranks[0].pid()), Step(3)));
    assert_eq!((first.threads.len(), first.threads[0].thread), (1, job.ranks[0].pid()));
    assert_eq!((line.rank, line.size, line.completed), (0, 2, 5));
    assert_eq!((line.last_operation, line.last_bytes), (Some(Operation::AllReduce), 4 << 20));
    assert!(line.entered > 5 && line.enqueued == line.entered - 1, "the last one has not returned: {line:?}");
    let other = job.ledger(1).ledger().read();
    assert_eq!((other.communicators[0].entered, other.communicators[0].completed), (5, 5));
    assert_eq!(other.communicators[0].id, line.id);
    assert_eq!(other.threads.len(), 0);

    job.ranks[0].signal("STOP");
    until("rank 0 to be stopped", || (job.ranks[0].state() == Some('T')).then_some(()));
    let stopped = ledger.ledger().read();
    // Meanwhile the other rank's hook thread continues for a while.
    let heartbeat = || job.ledger(1).ledger().read().heartbeat;
    let before = heartbeat();
    until("rank 1 to live on", || (heartbeat().since(before) > Duration::from_millis(200)).then_some(()));
    let later = ledger.ledger().read();
    assert_eq!(later, stopped, "nothing in a stopped process moves, its heartbeat neither");
    assert_eq!((&stopped.communicators, &stopped.threads), (&first.communicators, &first.threads));

    job.ranks[0].signal("KILL");
    until("rank 0 to be dead", || matches!(job.ranks[0].state(), None | Some('Z' | 'X')).then_some(()));
    assert_eq!(ledger.ledger().read(), stopped, "a mapping outlives the process");
    assert!(!job.listener.sender(job.ranks[0].pid()).unwrap().goodbye);
}

/// The first hang of many jobs is in communicator creation, when a rank is missing.
#[test]
fn ranks_that_wait_to_create_a_communicator_are_visible() {
    let script = "
if RANK == 1: hold()
communicator()";
    let job = Job::of(2, &[], script);
    let reading = reads(&job.ledger(0), "rank 0 waiting for rank 1", |reading| !reading.threads.is_empty());
    assert_eq!(reading.threads[0].call, Call::CommunicatorInit);
    assert_eq!(reading.communicators.len(), 0);
    assert_eq!(job.listener.received().len(), 1, "rank 1 has done nothing yet");
}

/// A thread that only asks whether the GPU is done waits for it. A launch begins a new wait, and a thread that stops
/// asking waits no longer. A thread that only watches the work of another one never waits.
#[test]
fn a_thread_that_asks_in_a_loop_waits_for_the_gpu() {
    let script = "
import threading
comm = communicator()
done = made(process.cudaEventCreateWithFlags, c_uint(2))
def asks():
    return process.cudaEventQuery(done) == 600
def watches():
    while True: process.cudaStreamQuery(stream), time.sleep(0.01)
ok(all_reduce(comm, 1000))
sync()
next_line()
if RANK == 0:
    threading.Thread(target=watches, daemon=True).start()
    ok(all_reduce(comm, 1000))
    ok(process.cudaEventRecord(done, stream))
    while asks(): time.sleep(0.001)
    ok(gemm_ex(2000000, 2000000, 2000000))
    ok(process.cudaEventRecord(done, stream))
    for _ in range(2000): asks(), time.sleep(0.001)
    Path(os.environ['RENDEZVOUS'], 'stopped').write_text('')
else:
    next_line()
    ok(all_reduce(comm, 1000))
hold()";
    let mut job = Job::of(2, &[], script);
    let main = job.ranks[0].pid();
    let ledger = job.ledger(0);
    let asks = |reading: &Reading| {
        let inside: Vec<_> = reading.threads.iter().map(|thread| (thread.thread, thread.call)).collect();
        assert!(inside.iter().all(|&(thread, _)| thread == main), "{inside:?}");
        inside.contains(&(main, Call::Query))
    };
    job.ranks.iter_mut().for_each(|rank| rank.write_line("go on"));
    let waits = reads(&ledger, "rank 0 to wait for a second", |reading| {
        let since = reading.threads.first().map(|thread| reading.heartbeat.since(thread.since));
        asks(reading) && since.is_some_and(|since| since > Duration::from_secs(1))
    });
    job.ranks[1].write_line("take part");
    reads(&ledger, "a new wait", |reading| {
        asks(reading) && reading.threads[0].since > waits.threads[0].since
    });
    until("the loop to end", || job.place.path("stopped").exists().then_some(()));
    reads(&ledger, "no wait", |reading| !asks(reading));
}

/// No collective is timed, but the ledger still shows which work is done.
#[test]
fn completion_is_known_without_timing() {
    let script = "
comm = communicator()
for round in range(100 if RANK == 1 else 100000):
    if round % 2 == 0: ok(all_reduce(comm, 1000))
    else:
        with Group():
            ok(all_reduce(comm, 1000))
            ok(all_reduce(comm, 2000))
    if round < 100: time.sleep(0.03)
hold()";
    let job = Job::of(2, &[("XPU_TOP_BUDGET", "0")], script);
    let ledgers = [0, 1].map(|rank| job.ledger(rank));
    let mut seen = 0;
    for _ in 0..2 {
        for ledger in &ledgers {
            let follows =
                |reading: &Reading| reading.communicators.first().is_some_and(|line| line.completed > seen);
            let line = &reads(ledger, "what is done to follow", follows).communicators[0];
            assert!(line.completed <= line.enqueued, "{line:?}");
        }
        seen = ledgers[0].ledger().read().communicators[0].completed;
    }
    // Rank 0 continues alone: its later launches never finish.
    let is_hung = |reading: &Reading| {
        let thread = reading.threads.first();
        thread.is_some_and(|thread| reading.heartbeat.since(thread.since) > Duration::from_millis(1500))
    };
    let line = &reads(&ledgers[0], "rank 0 held by NCCL", is_hung).communicators[0];
    assert!(line.enqueued > 150 && line.completed >= seen && line.completed <= 150, "{line:?}");
    assert!(job.listener.sender(job.ranks[0].pid()).unwrap().samples().is_empty());
}

/// PyTorch runs a collective with `async_op=False` on the current stream, which is the default stream in most
/// programs.
#[test]
fn waiting_for_the_default_stream_proves_its_collectives_done() {
    let script = "
default, comm = c_void_p(), communicator()
for round in range(20):
    ok(process.ncclAllReduce(memory, memory, c_size_t(1000), NCCL_BF16, 0, comm, default))
    ok(process.cudaStreamSynchronize(default))
step(20)
hold()";
    let job = Job::of(2, &[("XPU_TOP_BUDGET", "0")], script);
    let reading = reads(&job.ledger(0), "all collectives", |reading| reading.step == Step(20));
    let line = &reading.communicators[0];
    assert_eq!((line.enqueued, line.completed), (20, 20), "{line:?}");
}

/// A rank that is killed cannot report anything. Its ledger page stays as it was.
#[test]
fn a_rank_killed_inside_a_group_shows_its_last_call() {
    let script = "
comm = communicator()
for _ in range(7): ok(all_reduce(comm, 1000))
sync()
while RANK == 0:
    with Group():
        for count in (1000, 2000, 3000): ok(all_reduce(comm, count))
hold()";
    let job = Job::of(2, &[], script);
    let ledger = job.ledger(0);
    let in_group = |reading: &Reading| {
        let thread = reading.threads.first().filter(|thread| thread.call == Call::GroupEnd);
        thread.is_some_and(|thread| reading.heartbeat.since(thread.since) > Duration::from_millis(300))
    };
    reads(&ledger, "rank 0 inside the end of a group", in_group);
    job.ranks[0].signal("KILL");
    until("rank 0 to be dead", || matches!(job.ranks[0].state(), None | Some('Z' | 'X')).then_some(()));
    let dead = ledger.ledger().read();
    let line = &dead.communicators[0];
    assert_eq!((dead.threads[0].call, dead.threads[0].thread), (Call::GroupEnd, job.ranks[0].pid()));
    assert_eq!(line.entered, line.enqueued + 3, "{line:?}");
    assert!(line.enqueued % 3 == 7 % 3 && line.completed <= 7, "{line:?}");
    assert_eq!((line.last_operation, line.last_bytes), (Some(Operation::AllReduce), 6000));
}

/// A rank that is stopped between its calls, as by a debugger, is in no call.
#[test]
fn a_rank_stopped_in_its_own_code_is_inside_no_call() {
    let script = "
comm = communicator()
for _ in range(11): ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    let ledger = job.ledger(0);
    reads(&ledger, "all to be done", |reading| {
        reading.step == Step(1) && reading.communicators[0].completed == 11
    });
    job.ranks[0].signal("STOP");
    until("rank 0 to be stopped", || (job.ranks[0].state() == Some('T')).then_some(()));
    let stopped = ledger.ledger().read();
    assert_eq!((stopped.threads.len(), stopped.step), (0, Step(1)));
    let line = &stopped.communicators[0];
    assert_eq!((line.entered, line.enqueued, line.completed), (11, 11, 11));
    job.ranks[0].signal("KILL");
    until("rank 0 to be dead", || matches!(job.ranks[0].state(), None | Some('Z' | 'X')).then_some(()));
    assert_eq!(ledger.ledger().read(), stopped);
}
