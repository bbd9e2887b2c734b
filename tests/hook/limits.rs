//! Limits: more records than fit into a ring, more calls than fit into a group, and events that happen at the
//! same moment.

use std::collections::BTreeMap;

use xpu_tests::{
    built,
    place::Place,
    program::{Program, run},
};
use xpu_wire::collective::Operation;

use crate::{Job, command};

#[test]
fn a_quarter_million_operations_a_second_are_all_recorded() {
    let place = Place::new();
    let libraries = place.path("immediate");
    std::fs::create_dir(&libraries).expect("a folder in a fresh folder");
    for (_, soname) in built::STAND_INS {
        let flags = ["-shared", "-fPIC", "-O2", &format!("-Wl,-soname,{soname}")];
        built::compile("bench/stub.c", &libraries.join(soname), &flags);
    }
    let program = place.path("rate");
    built::compile("hook/rate.c", &program, &["-O2"]);
    let outcome =
        run(place.watched(&program).env("LD_LIBRARY_PATH", &libraries).env("XPU_TOP_SAMPLE", "gemm=1048576"));
    assert_eq!(outcome.stdout, "0\n", "{outcome:?}");
}

/// One rank exchanges more messages than the other, as in an uneven all-to-all. Both make the same
/// collectives.
#[test]
fn calls_beyond_the_group_limit_are_counted_and_numbered() {
    let script = "
comm = communicator()
pairs = 3000 if RANK == 0 else 5
with Group():
    for _ in range(pairs):
        ok(send(comm, 16, RANK))
        ok(receive(comm, 16, RANK))
    for _ in range(5): ok(all_reduce(comm, 1000))
for _ in range(3): ok(all_reduce(comm, 2000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for (rank, transfers, lost) in [(0, 6000, 6005 - 2048), (1, 10, 0)] {
        let said = job.after_step(rank, 1);
        let launches = said.launches();
        assert_eq!((launches.point_to_point, launches.collectives), (transfers, 8), "rank {rank}");
        let samples: Vec<_> =
            said.samples().iter().map(|sample| (sample.sequence.0, sample.operation)).collect();
        let single = |number| (number, Operation::AllReduce);
        assert_eq!(samples, [(0, Operation::Fused), single(5), single(6), single(7)], "rank {rank}");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (8, 8, 8), "rank {rank}");
        assert_eq!(said.summaries.last().expect("one").hook.dropped_records, lost, "rank {rank}");
    }
    job.end();
}

/// NCCL makes the communicators when the group ends. Before that, the hook may not query them.
#[test]
fn communicators_made_in_a_group_are_known() {
    let script = "
all_ranks = communicator()
child, none = c_void_p(), c_void_p()
with Group():
    ok(process.ncclCommSplit(all_ranks, 0, RANK, byref(child), None))
for _ in range(3): ok(all_reduce(child, 1000))
again = UniqueId()
ok(process.ncclGetUniqueId(byref(again)))
own = c_void_p()
with Group():
    ok(process.ncclCommInitRank(byref(own), 1, again, 0))
for _ in range(4): ok(all_reduce(own, 2000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        assert_eq!(said.launches().collectives, 7);
        let last = said.summaries.last().expect("one");
        assert_eq!(last.hook.blind.len(), 0, "{:?}", last.hook.blind);
        let places: Vec<_> = last.communicators.iter().map(|known| (known.rank, known.size)).collect();
        assert_eq!(places, [(rank as u32, 2), (rank as u32, 2), (0, 1)]);
        assert_eq!(last.communicators[1].parent, Some(last.communicators[0].id));
    }
    let [first, second] = [0, 1].map(|rank| job.after_step(rank, 1).summaries.last().cloned());
    assert_eq!(
        first.expect("one").communicators[1].id,
        second.expect("one").communicators[1].id,
        "the split has one id on all ranks"
    );
    job.end();
}

/// `cudaStreamEndCapture` on a stream without a capture ends no capture.
#[test]
fn a_graph_capture_ended_on_the_wrong_stream_continues() {
    let job = Job::alone(
        "gemm=1",
        "
other = made(process.cudaStreamCreateWithFlags, c_uint(1))
def work():
    unused = c_void_p()
    assert process.cudaStreamEndCapture(other, byref(unused)) != 0
    process.cudaGetLastError()
    for _ in range(10): ok(gemm_ex(1024, 1024, 1024))
graph = capture(work)
ok(graph())
sync()
step(1)
hold()",
    );
    let launches = job.after_step(0, 1).launches();
    assert_eq!((launches.gemms, launches.captured, launches.graphs), (10, 10, 1));
    job.end();
}

/// Reading the environment while the program changes it may crash the program. A rank keeps the identity that
/// it had at its first call.
#[test]
fn the_environment_is_read_at_the_first_call() {
    let script = "
libc = ctypes.CDLL(None)
change = libc.setenv
value = c_int(1)
ok(gemm_ex(512, 512, 512)) or change(b'RANK', b'5', value); change(b'XPU_TOP_JOB', b'other', value); change(b'XPU_TOP_SOCKET', b'/nowhere', value)
sync()
step(1)
hold()";
    let place = Place::new();
    let set = [("XPU_TOP_JOB", "mine")];
    let mut hellos = BTreeMap::new();
    for _ in 0..5 {
        let listener = xpu_tests::listener::Listener::at(&place.socket());
        let rank = Program::start(&mut command(&place, 4, 3, &set, script));
        let said = listener.after_step(rank.pid(), 1);
        *hellos.entry((said.hellos[0].rank.0, said.hellos[0].job.0.clone())).or_insert(0) += 1;
        assert!(rank.end().status.success());
    }
    assert_eq!(hellos, BTreeMap::from([((3, "mine".to_owned()), 5)]));
}
