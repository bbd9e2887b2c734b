//! Forks, the switch, collectors that start and end, and exits.

use std::collections::BTreeMap;

use xpu_tests::{
    listener::{Listener, Sender},
    place::Place,
    program::{Program, until},
};
use xpu_wire::{
    frame::{self, Launches},
    id::Step,
    ledger::LedgerPage,
};

use crate::{Job, command};

#[test]
fn a_forked_child_has_its_own_connection() {
    let job = Job::alone(
        "gemm=1",
        "
for _ in range(20): ok(gemm_ex(512, 512, 512))
step(5)
child = os.fork()
if child == 0:
    assert gemm_ex(512, 512, 512) != 0
    for _ in range(7): step()
    hold()
    sys.exit(0)
for _ in range(10): ok(gemm_ex(512, 512, 512))
sync()
step(6)
hold()
assert os.waitpid(child, 0)[1] == 0",
    );
    let parent = job.after_step(0, 6);
    let child = until("a second process to say hello and step", || {
        let received = job.listener.received();
        let other = |sender: &&Sender| sender.hellos.iter().any(|hello| hello.pid.0 != job.ranks[0].pid());
        received.iter().find(other).filter(|sender| sender.steps() == Some(7)).cloned()
    });
    assert_eq!(parent.launches().gemms, 30);
    assert_eq!(child.launches(), Launches::default(), "it launched nothing");
    assert_ne!(child.hellos[0].pid, parent.hellos[0].pid);
    assert_eq!(child.hellos[0].job, parent.hellos[0].job);
    let ledger = LedgerPage::open(child.hellos[0].pid, child.hellos[0].ledger.unwrap()).unwrap();
    assert_eq!((ledger.ledger().read().pid, ledger.ledger().read().step), (child.hellos[0].pid, Step(7)));
    assert_eq!(job.ledger(0).ledger().read().step, Step(6), "the parent's page is the parent's");
    job.end();
}

#[test]
fn the_switch_stops_counting_and_starts_it_again() {
    let mut job = Job::alone(
        "gemm=1",
        "
for _ in range(20): ok(gemm_ex(512, 512, 512))
switch(0)
for _ in range(100): ok(gemm_ex(512, 512, 512))
step(99)
assert counter('gemms') == 20 and counter('steps') == 99
switch(1)
for _ in range(3): ok(gemm_ex(512, 512, 512))
sync()
step(1)
while next_line() == 'again':
    ok(gemm_ex(512, 512, 512))
    step()
hold()",
    );
    assert_eq!(job.after_step(0, 1).launches().gemms, 23);
    let enabled = |sender: &Sender| sender.summaries.last().unwrap().hook.enabled;
    let pid = job.ranks[0].pid();
    for on in [false, true] {
        job.listener.say(frame::Command::Enable(on));
        until("the hook to obey", || job.listener.sender(pid).filter(|sender| enabled(sender) == on));
        job.ranks[0].write_line("again");
    }
    // The process may read the first line only after the hook is on again. Then both GEMMs count, otherwise one.
    let before = job.after_step(0, 2).launches().gemms;
    assert!((24..=25).contains(&before), "{before}");
    job.ranks[0].write_line("enough");
    job.end();
}

/// Ranks are switched one after another, and must still agree on numbers.
#[test]
fn ranks_agree_on_numbers_after_one_was_off() {
    let script = "
comm = communicator()
def some(first):
    for i in range(first, first + 20):
        ok(all_reduce(comm, 1000 + i))
    with Group():
        ok(all_reduce(comm, 1000 + first + 20))
        ok(all_reduce(comm, 1000 + first + 21))
some(0)
if RANK == 0: switch(0)
some(22)
ok(process.ncclGroupStart())
if RANK == 0: switch(1)
ok(process.ncclGroupEnd())
some(44)
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    let [first, second] = [0, 1].map(|rank| job.after_step(rank, 1));
    let by_number = |sender: &Sender| -> BTreeMap<u64, u64> {
        sender.samples().iter().map(|sample| (sample.sequence.0, sample.bus_bytes)).collect()
    };
    let (first, second) = ((by_number(&first), first), (by_number(&second), second));
    assert_eq!(second.0.len(), 63, "20 and a group, three times");
    assert_eq!(first.0.len(), 42, "rank 0 saw nothing of the second third");
    assert!(
        first.0.iter().all(|(number, bytes)| second.0.get(number) == Some(bytes)),
        "{:?} {:?}",
        first.0,
        second.0
    );
    assert_eq!((first.1.launches().collectives, second.1.launches().collectives), (44, 66));
    for rank in [0, 1] {
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (66, 66, 66), "rank {rank}");
    }
    job.end();
}

#[test]
fn a_late_or_restarted_collector_receives_all_totals() {
    let place = Place::new();
    let script = "
for _ in range(123): ok(gemm_ex(512, 512, 512))
for _ in range(45): ok(gemm_ex(256, 512, 512))
sync()
step(1)
while next_line(): step()
hold()";
    let mut rank = Program::start(&mut command(&place, 1, 0, &[("XPU_TOP_SAMPLE", "gemm=1")], script));
    until("the hook to look for a collector", || (rank.hook_threads() > 0).then_some(()));
    for step in 1..=2 {
        let listener = Listener::at(&place.socket());
        rank.write_line("on");
        let said = listener.after_step(rank.pid(), step);
        let counts: Vec<_> = said.gemms().into_values().map(|totals| (totals.count, totals.timed)).collect();
        assert_eq!(counts, [(45, 45), (123, 123)]);
        assert_eq!(said.hellos[0].program.split(' ').next().map(|path| path.contains("python")), Some(true));
    }
    assert!(rank.end().status.success());
    drop(place);
}

#[test]
fn an_ending_process_sends_goodbye_and_a_killed_one_does_not() {
    let job = Job::alone("gemm=1", "ok(gemm_ex(512, 512, 512)); sync(); step(1); hold()");
    job.after_step(0, 1);
    let pid = job.ranks[0].pid();
    let Job { listener, ranks, place } = job;
    for rank in ranks {
        assert!(rank.end().status.success());
    }
    until("a goodbye", || listener.sender(pid).filter(|sender| sender.goodbye));
    let killed =
        Program::start(&mut command(&place, 1, 0, &[], "ok(gemm_ex(512, 512, 512)); step(1); hold()"));
    listener.after_step(killed.pid(), 1);
    killed.signal("KILL");
    let pid = killed.pid();
    assert!(!killed.end().status.success());
    assert!(!listener.sender(pid).unwrap().goodbye);
}
