//! The record of the last NCCL calls in the ledger: each call in order, with its caller and its outcome.

use std::process::Command;

use xpu_tests::program::until;
use xpu_wire::{
    collective::Operation::{AllReduce, Broadcast, Recv, Send},
    datatype::DataType,
    ledger::{CALLS, CallReading, LedgerPage},
};

use crate::Job;

fn made(page: &LedgerPage, count: u64) -> Vec<CallReading> {
    until("the calls to be made", || {
        let (calls, made) = page.ledger().record.read(CALLS);
        (made == count).then_some(calls)
    })
}

#[test]
fn calls_of_all_communicators_are_recorded_in_order_with_their_states() {
    let script = "
comm = communicator()
other = c_void_p()
ok(process.ncclCommSplit(comm, 0, RANK, byref(other), None))
ok(all_reduce(comm, 1000, NCCL_FLOAT))
ok(bcast(other, 10))
with Group():
    ok(send(comm, 7, 1 - RANK))
    ok(receive(comm, 7, 1 - RANK))
ok(send(comm, 9, 1)) if RANK == 0 else ok(receive(comm, 9, 0))
all_reduce(comm, 1, NCCL_NONSENSE)
ok(all_reduce(comm, 2000))
launch = capture(lambda: [ok(all_reduce(comm, 64)) for _ in range(3)])
ok(launch())
ok(all_reduce(comm, 1))
sync()
hold()";
    let job = Job::of(2, &[], script);
    let (page, other) = (job.ledger(0), job.ledger(1));
    let calls = made(&page, 12);
    let reported = |call: &CallReading| (call.operation, call.number, call.bytes, call.peer);
    assert_eq!(reported(&calls[0]), (AllReduce, Some(0), 4000, None));
    assert_eq!((calls[0].datatype, calls[0].reduction, calls[0].member), (DataType::Float32, 1, 0));
    assert_eq!(reported(&calls[1]), (Broadcast, Some(0), 20, Some(0)));
    assert!(calls[1].communicator != calls[0].communicator && calls[1].reduction == 0);
    assert_eq!(
        [reported(&calls[2]), reported(&calls[3])],
        [(Send, Some(0), 14, Some(1)), (Recv, Some(0), 14, Some(1))]
    );
    assert_eq!([calls[2].group, calls[3].group, calls[4].group], [Some(2), Some(2), None]);
    assert_eq!(reported(&calls[4]), (Send, Some(1), 18, Some(1)), "the second message on this way");
    assert_eq!(made(&other, 12)[4].number, Some(1));
    assert!(calls[5].refused && !calls[5].enqueued, "{:?}", calls[5]);
    assert_eq!(
        reported(&calls[6]),
        (AllReduce, Some(1), 4000, None),
        "the number of a refused call is given again"
    );
    assert!(calls[7..10].iter().all(|call| call.captured && call.number.is_none()), "{calls:?}");
    assert_eq!(
        (calls[10].replays, calls[10].number),
        (3, Some(2)),
        "a replayed graph counts once per launch"
    );
    assert_eq!(reported(&calls[11]), (AllReduce, Some(5), 2, None));
    let enqueued: Vec<_> = calls.iter().filter(|call| !call.enqueued).map(|call| call.ticket).collect();
    assert_eq!(enqueued, [5, 7, 8, 9, 10]);
    assert!(calls.iter().filter(|call| call.replays == 0).all(|call| call.returns_to != 0));
    assert!(
        [2, 4].iter().all(|&at| calls[at].queued) && !calls[3].queued,
        "the first of a group has the event"
    );
    // ctypes calls through libffi: the caller is the same place in libffi in every process, wherever libffi
    // is loaded.
    let native =
        |page: &LedgerPage, call: &CallReading| page.ledger().record.native_sites.read(call.returns_to);
    let (here, there) = (native(&page, &calls[0]), native(&other, &made(&other, 12)[0]));
    assert!(here.is_some() && here == there, "{here:?}, {there:?}");
    assert!(here.as_deref().unwrap().contains(".so"), "{here:?}");
    job.end();
}

/// Runs under every installed Python, with calls that go through other functions.
#[test]
fn the_python_call_site_is_known_under_every_installed_version() {
    let script = "
comm = communicator()
def reduce(count):
    ok(process.ncclAllReduce(memory, memory, c_size_t(count), NCCL_BF16, 0, comm, stream))
class Trainer:
    def forward(self):
        reduce(1)
    def log_metrics(self):
        for count in (2, 3): reduce(count)
# The hook's thread has seen this Python.
for _ in range(200):
    reduce(4); sync(); time.sleep(0.02)
trainer = Trainer()
for _ in range(3): trainer.forward()
trainer.log_metrics()
eval(compile('\\n' * 41 + 'reduce(5)', 'übung.py', 'exec'))
sync()
hold()";
    let versions =
        ["", ".9", ".10", ".11", ".12", ".13", ".14", ".15"].map(|minor| format!("python3{minor}"));
    let there = |python: &&String| {
        let asked = Command::new(python).args(["-c", "import ctypes"]).output();
        asked.is_ok_and(|outcome| outcome.status.success())
    };
    let mut tried = 0;
    for python in versions.iter().filter(there) {
        let job = Job::alone_under(python, script);
        let page = job.ledger(0);
        let calls = made(&page, 206);
        let site = |call: &CallReading| {
            let text = page
                .ledger()
                .record
                .sites
                .read(call.site)
                .unwrap_or_else(|| panic!("{python}: {call:?}"))
                .text;
            let frames: Vec<_> = text.lines().map(|line| line.replace('\0', " ")).collect();
            frames
        };
        let line = |text: &str| script.lines().position(|line| line.contains(text)).expect("it is there") + 2;
        let forward = site(&calls[200]);
        let inner = format!("reduce <string> {}", line("ncclAllReduce"));
        let expected = [
            format!("forward <string> {}", line("reduce(1)")),
            format!("<module> <string> {}", line("range(3)")),
        ];
        assert_eq!(forward[0], inner, "{python}: {forward:?}");
        // From 3.11 on, the name of a function includes its class.
        assert_eq!(forward[1].trim_start_matches("Trainer."), expected[0], "{python}: {forward:?}");
        assert_eq!(forward[2], expected[1], "{python}: {forward:?}");
        assert!(calls[200..203].iter().all(|call| call.site == calls[200].site), "one place, one site");
        assert!(calls[203].site == calls[204].site && calls[203].site != calls[200].site);
        assert!(site(&calls[203])[1].contains("log_metrics <string>"), "{python}");
        assert_eq!(site(&calls[205])[1], "<module> ? 42", "{python}: non-ASCII letters are not reported");
        job.end();
        tried += 1;
    }
    assert!(tried > 0);
}
