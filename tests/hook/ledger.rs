//! What the ledger tells of a rank that hangs, waits, is stopped or is dead.

use std::time::Duration;

use xpu_shared::{
    collective::Operation,
    id::{Pid, Step},
    ledger::{Call, Reading},
};
use xpu_tests::program::until;

use crate::{Job, reads};

/// Rank 1 does five collectives and no more; rank 0 goes on until NCCL lets it no further.
#[test]
fn the_ledger_tells_of_a_rank_that_hangs_is_stopped_or_is_dead() {
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
    // It stays inside, and the hook's own thread goes on.
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
    // Meanwhile the other rank's thread goes on for a while.
    let beat = || job.ledger(1).ledger().read().heartbeat;
    let before = beat();
    until("rank 1 to live on", || (beat().since(before) > Duration::from_millis(200)).then_some(()));
    let later = ledger.ledger().read();
    assert_eq!(later, stopped, "nothing in a stopped process moves, its heartbeat neither");
    assert_eq!((&stopped.communicators, &stopped.threads), (&first.communicators, &first.threads));

    job.ranks[0].signal("KILL");
    until("rank 0 to be dead", || matches!(job.ranks[0].state(), None | Some('Z' | 'X')).then_some(()));
    assert_eq!(ledger.ledger().read(), stopped, "a mapping outlives the process");
    assert!(!job.listener.speaker(job.ranks[0].pid()).unwrap().goodbye);
}

/// The first thing that hangs in many jobs is that not all ranks meet.
#[test]
fn ranks_that_wait_for_others_to_meet_are_seen() {
    let script = "
if RANK == 1: hold()
communicator()";
    let job = Job::of(2, &[], script);
    let reading = reads(&job.ledger(0), "rank 0 waiting for rank 1", |reading| !reading.threads.is_empty());
    assert_eq!(reading.threads[0].call, Call::CommunicatorInit);
    assert_eq!(reading.communicators.len(), 0);
    assert_eq!(job.listener.heard().len(), 1, "rank 1 has done nothing yet");
}
