//! What the hook says: scripts on the stand-in libraries, heard through ZeroMQ and read from the ledger.

mod limits;

use std::{
    collections::{BTreeMap, BTreeSet},
    process::Command,
    thread,
    time::Duration,
};

use xpu_shared::{
    collective::Operation,
    datatype::DataType,
    frame::{self, Launches},
    gemm::{ComputeType, GemmShape},
    id::{Pid, Step},
    ledger::{Call, LedgerPage, Reading},
    sampling::Rate,
    unit::{GigabytesPerSecond, Nanoseconds, Tflops},
};
use xpu_tests::{
    listener::{Listener, Speaker},
    place::Place,
    program::{Program, until},
};

/// Ranks that run the same script, and who listens to them.
struct Job {
    place: Place,
    listener: Listener,
    ranks: Vec<Program>,
}

impl Job {
    /// A job of one rank.
    fn alone(sample: &str, script: &str) -> Self {
        Self::of(1, &[("XPU_TOP_SAMPLE", sample)], script)
    }

    fn of(world: usize, set: &[(&str, &str)], script: &str) -> Self {
        let place = Place::new();
        let listener = Listener::at(&place.socket());
        let ranks =
            (0..world).map(|rank| Program::start(&mut command(&place, world, rank, set, script))).collect();
        Self { place, listener, ranks }
    }

    /// What a rank has said when it has said that this step is completed.
    #[track_caller]
    fn after_step(&self, rank: usize, step: u64) -> Speaker {
        self.listener.after_step(self.ranks[rank].pid(), step)
    }

    /// The ledger of a rank, found as the collector finds it.
    #[track_caller]
    fn ledger(&self, rank: usize) -> LedgerPage {
        let pid = self.ranks[rank].pid();
        let speaker = until("a rank to say where its ledger is", || self.listener.speaker(pid));
        let descriptor = speaker.hellos[0].ledger.expect("it has one");
        LedgerPage::open(Pid(pid), descriptor).expect("it can be mapped")
    }

    /// Lets the ranks end, as they should.
    #[track_caller]
    fn end(self) {
        for rank in self.ranks {
            let outcome = rank.end();
            assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
        }
        assert_eq!(self.place.leftovers(), Vec::<std::path::PathBuf>::new());
    }
}

fn command(place: &Place, world: usize, rank: usize, set: &[(&str, &str)], script: &str) -> Command {
    let mut command = place.script(&format!("from gpu import *\n{script}"));
    command
        .env("RENDEZVOUS", place.path(""))
        .env("WORLD_SIZE", world.to_string())
        .env("RANK", rank.to_string());
    command.envs(set.iter().copied());
    command
}

fn shape([m, n, k]: [u64; 3], datatype: DataType, transposed: (bool, bool)) -> GemmShape {
    GemmShape { m, n, k, batch: 1, datatype, compute: ComputeType::Float32, transposed }
}

/// Waits until the ledger shows it.
#[track_caller]
fn reads(ledger: &LedgerPage, what: &str, check: impl Fn(&Reading) -> bool) -> Reading {
    until(what, || Some(ledger.ledger().read()).filter(&check))
}

#[test]
fn every_launch_is_counted_once() {
    let job = Job::alone(
        "gemm=16",
        "
comm = communicator()
for _ in range(1000): ok(gemm_ex(512, 512, 512))
for _ in range(200): ok(kernel())
for _ in range(70): ok(all_reduce(comm, 1024))
for _ in range(30): ok(bcast(comm, 2048))
for _ in range(10):
    with Group():
        ok(all_reduce(comm, 4096))
        with Group():
            ok(all_gather(comm, 8192))
        ok(send(comm, 16, 0))
        ok(receive(comm, 16, 0))
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let launches = Launches {
        kernels: 200,
        graphs: 0,
        gemms: 1000,
        collectives: 70 + 30 + 20,
        point_to_point: 20,
        captured: 0,
    };
    assert_eq!(said.launches(), launches);
    let counts: BTreeMap<_, _> =
        said.collectives().into_iter().map(|(key, totals)| (key, totals.count)).collect();
    let expected = [
        ((Operation::AllReduce, 2 * 1024), 70),
        ((Operation::AllReduce, 2 * 4096), 10),
        ((Operation::AllGather, 4 * 8192), 10),
        ((Operation::Broadcast, 2 * 2048), 30),
        ((Operation::Send, 32), 10),
        ((Operation::Recv, 32), 10),
    ];
    assert_eq!(counts, BTreeMap::from(expected));
    let gemms = said.gemms();
    let product = &gemms[&shape([512, 512, 512], DataType::Bfloat16, (false, false))];
    let timed = (0..1000).filter(|&number| Rate(4).times(number)).count() as u64;
    assert_eq!((gemms.len(), product.count, product.timed), (1, 1000, timed));
    let health = &said.summaries.last().unwrap().hook;
    assert_eq!((health.dropped_records, health.untimed, health.blind.len()), (0, 0, 0));
    job.end();
}

#[test]
fn shapes_types_and_transposition_are_the_callers() {
    let job = Job::alone(
        "gemm=1",
        "
ok(gemm_ex(256, 128, 64, a=1))
ok(gemm_ex(256, 128, 64, b=1, dtype=FLOAT, compute=COMPUTE_TF32))
ok(strided(96, 80, 48, batch=12))
ok(sgemm(33, 44, 55))
ok(matmul(640, 320, 160))
ok(matmul(640, 320, 160, a=1))
ok(matmul(640, 320, 160, b=1, batch=3))
ok(matmul(640, 320, 160, a=1, b=1))
assert gemm_ex(-1, 5, 5) != 0
sync()
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let bf16 = DataType::Bfloat16;
    let tf32 = ComputeType::Float32FastTf32;
    let expected = [
        shape([256, 128, 64], bf16, (true, false)),
        GemmShape { compute: tf32, ..shape([256, 128, 64], DataType::Float32, (false, true)) },
        GemmShape {
            batch: 12,
            compute: ComputeType::Float16,
            ..shape([96, 80, 48], DataType::Float16, (false, true))
        },
        shape([33, 44, 55], DataType::Float32, (false, false)),
        shape([640, 320, 160], bf16, (false, false)),
        shape([640, 320, 160], bf16, (true, false)),
        GemmShape { batch: 3, ..shape([640, 320, 160], bf16, (false, true)) },
        shape([640, 320, 160], bf16, (true, true)),
    ];
    let gemms = said.gemms();
    assert_eq!(gemms.keys().copied().collect::<BTreeSet<_>>(), BTreeSet::from(expected));
    assert!(gemms.values().all(|totals| (totals.count, totals.timed) == (1, 1)), "{gemms:?}");
    let flops: f64 = gemms.keys().map(GemmShape::flops).sum();
    let lt = 640.0 * 320.0 * 160.0 * (1.0 + 1.0 + 3.0 + 1.0);
    assert_eq!(
        flops,
        2.0 * (2.0 * 256.0 * 128.0 * 64.0 + 12.0 * 96.0 * 80.0 * 48.0 + 33.0 * 44.0 * 55.0 + lt)
    );
    job.end();
}

/// A message holds 128 shapes.
#[test]
fn shapes_in_great_number_are_all_said() {
    let job = Job::alone(
        "gemm=1",
        "
for _ in range(2):
    for n in range(500): ok(gemm_ex(64 + n, 64, 64))
    sync()
    time.sleep(0.1)
step(1)
hold()",
    );
    let said = job.after_step(0, 1);
    let totals: Vec<_> = said.gemms().into_values().map(|totals| (totals.count, totals.timed)).collect();
    assert_eq!(totals.len(), 500);
    let untimed = said.summaries.last().unwrap().hook.untimed;
    assert!(totals.iter().all(|&(count, timed)| count == 2 && timed <= 2));
    assert_eq!(totals.iter().map(|(_, timed)| timed).sum::<u64>() + untimed, 1000);
    job.end();
}

#[test]
fn the_rate_of_products_is_the_machines() {
    let set = [("XPU_TOP_SAMPLE", "gemm=1"), ("SIMGPU_TFLOPS", "123")];
    let script = "
# The first keeps the GPU busy while the others are launched behind it.
ok(gemm_ex(16384, 8192, 8192))
for _ in range(60): ok(gemm_ex(4096, 4096, 4096))
for _ in range(60): ok(matmul(4096, 2048, 4096, a=1))
sync()
step(1)
hold()";
    let job = Job::of(1, &set, script);
    let gemms = job.after_step(0, 1).gemms();
    for (sides, transposed) in [([4096, 4096, 4096], (false, false)), ([4096, 2048, 4096], (true, false))] {
        let shape = shape(sides, DataType::Bfloat16, transposed);
        let totals = &gemms[&shape];
        assert_eq!((totals.count, totals.timed), (60, 60));
        let rate = Tflops::from_work(60.0 * shape.flops(), totals.timed_for).unwrap();
        assert!((rate.0 / 123.0 - 1.0).abs() < 0.02, "{shape}: {rate} TFLOPS");
    }
    job.end();
}

#[test]
fn all_ranks_time_the_same_collectives() {
    let set = [("XPU_TOP_SAMPLE", "collective=4"), ("SIMGPU_BUS_GB_S", "200")];
    let script = "
comm = communicator()
for _ in range(200): ok(all_reduce(comm, 64 << 20))
sync()
step(1)
hold()";
    let job = Job::of(2, &set, script);
    let [first, second] = [0, 1].map(|rank| job.after_step(rank, 1).samples());
    let chosen: Vec<u64> = (0..200).filter(|&number| Rate(2).times(number)).collect();
    assert!(chosen.len() > 30 && chosen.len() < 64, "{}", chosen.len());
    for samples in [&first, &second] {
        assert_eq!(samples.iter().map(|sample| sample.sequence.0).collect::<Vec<_>>(), chosen);
        assert!(samples.iter().all(|sample| sample.communicator == first[0].communicator));
    }
    // The shortest of a collective's durations is its transfer; the rest is waiting.
    let shortest = first.iter().zip(&second).map(|(a, b)| a.duration.min(b.duration));
    let mut rates: Vec<f64> = shortest
        .map(|duration| GigabytesPerSecond::from_work(first[0].bus_bytes as f64, duration).unwrap().0)
        .collect();
    rates.sort_by(f64::total_cmp);
    let median = rates[rates.len() / 2];
    assert!((median / 200.0 - 1.0).abs() < 0.02, "{median} GB/s");
    job.end();
}

#[test]
fn a_group_is_timed_as_one() {
    let script = "
comm = communicator()
with Group():
    for count in (1000, 2000, 3000): ok(all_reduce(comm, count))
with Group():
    ok(all_reduce(comm, 4000))
ok(all_reduce(comm, 5000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let totals: BTreeMap<_, _> =
            said.collectives().into_iter().map(|(key, totals)| (key, (totals.count, totals.timed))).collect();
        let expected = [
            ((Operation::AllReduce, 2000), (1, 0)),
            ((Operation::AllReduce, 4000), (1, 0)),
            ((Operation::AllReduce, 6000), (1, 0)),
            ((Operation::AllReduce, 8000), (1, 1)),
            ((Operation::AllReduce, 10000), (1, 1)),
            ((Operation::Fused, 12000), (1, 1)),
        ];
        assert_eq!(totals, BTreeMap::from(expected), "rank {rank}");
        let samples: Vec<_> = said
            .samples()
            .iter()
            .map(|sample| (sample.sequence.0, sample.operation, sample.bus_bytes))
            .collect();
        let expected =
            [(0, Operation::Fused, 12000), (3, Operation::AllReduce, 8000), (4, Operation::AllReduce, 10000)];
        assert_eq!(samples, expected, "rank {rank}");
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (5, 5, 5));
    }
    job.end();
}

#[test]
fn a_call_that_fails_has_no_number() {
    let script = "
comm = communicator()
for _ in range(5): ok(all_reduce(comm, 1000))
assert all_reduce(comm, 1000, NCCL_NONSENSE) != 0
assert all_reduce(None, 1000) != 0
with Group():
    ok(all_reduce(comm, 1000))
    assert all_reduce(comm, 1000, NCCL_NONSENSE) != 0
for _ in range(5): ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        assert_eq!(said.launches().collectives, 11);
        let numbers: Vec<u64> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, (0..11).collect::<Vec<_>>());
        let line = &job.ledger(rank).ledger().read().communicators[0];
        assert_eq!((line.entered, line.enqueued, line.completed), (11, 11, 11));
    }
    job.end();
}

#[test]
fn what_is_captured_is_counted_and_not_timed() {
    let script = "
comm = communicator()
ok(gemm_ex(1024, 1024, 1024))
ok(all_reduce(comm, 1000))
def work():
    for _ in range(10): ok(gemm_ex(1024, 1024, 1024))
    for _ in range(3): ok(all_reduce(comm, 1000))
    with Group():
        for _ in range(2): ok(all_reduce(comm, 1000))
graph = capture(work)
for _ in range(4): ok(graph())
ok(gemm_ex(1024, 1024, 1024))
ok(all_reduce(comm, 1000))
sync()
step(1)
hold()";
    let job = Job::of(2, &[("XPU_TOP_SAMPLE", "gemm=1,collective=1")], script);
    for rank in [0, 1] {
        let said = job.after_step(rank, 1);
        let launches = said.launches();
        assert_eq!((launches.gemms, launches.collectives, launches.graphs), (12, 7, 4));
        assert_eq!(launches.captured, 15);
        let health = &said.summaries.last().unwrap().hook;
        assert_eq!((health.untimed, health.dropped_records), (0, 0), "no event was asked for and refused");
        let product = &said.gemms()[&shape([1024, 1024, 1024], DataType::Bfloat16, (false, false))];
        assert_eq!((product.count, product.timed), (12, 2));
        let numbers: Vec<u64> = said.samples().iter().map(|sample| sample.sequence.0).collect();
        assert_eq!(numbers, [0, 6]);
    }
    job.end();
}

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
    thread::sleep(Duration::from_millis(200));
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

#[test]
fn a_forked_child_speaks_for_itself() {
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
        let heard = job.listener.heard();
        let other = |speaker: &&Speaker| speaker.hellos.iter().any(|hello| hello.pid.0 != job.ranks[0].pid());
        heard.iter().find(other).filter(|speaker| speaker.steps() == Some(7)).cloned()
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
assert counter('gemms') == 20 and counter('steps') == 0
switch(1)
for _ in range(3): ok(gemm_ex(512, 512, 512))
sync()
step(1)
while told() == 'again':
    ok(gemm_ex(512, 512, 512))
    step()
hold()",
    );
    assert_eq!(job.after_step(0, 1).launches().gemms, 23);
    let enabled = |speaker: &Speaker| speaker.summaries.last().unwrap().hook.enabled;
    let pid = job.ranks[0].pid();
    for on in [false, true] {
        job.listener.say(frame::Command::Enable(on));
        until("the hook to obey", || job.listener.speaker(pid).filter(|speaker| enabled(speaker) == on));
        job.ranks[0].tell("again");
    }
    // The one told while it was off may have come late, when it was on again: one or two are seen, then all.
    let before = job.after_step(0, 2).launches().gemms;
    assert!((24..=25).contains(&before), "{before}");
    job.ranks[0].tell("enough");
    job.end();
}

/// Ranks are switched one after another: they must agree on numbers all the same.
#[test]
fn numbers_agree_after_one_rank_was_off() {
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
    let by_number = |speaker: &Speaker| -> BTreeMap<u64, u64> {
        speaker.samples().iter().map(|sample| (sample.sequence.0, sample.bus_bytes)).collect()
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
fn a_collector_that_comes_late_or_again_hears_everything() {
    let place = Place::new();
    let script = "
for _ in range(123): ok(gemm_ex(512, 512, 512))
for _ in range(45): ok(gemm_ex(256, 512, 512))
sync()
step(1)
while told(): step()
hold()";
    let mut rank = Program::start(&mut command(&place, 1, 0, &[("XPU_TOP_SAMPLE", "gemm=1")], script));
    until("the hook to look for a collector", || (rank.hook_threads() > 0).then_some(()));
    for step in 1..=2 {
        let listener = Listener::at(&place.socket());
        rank.tell("on");
        let said = listener.after_step(rank.pid(), step);
        let counts: Vec<_> = said.gemms().into_values().map(|totals| (totals.count, totals.timed)).collect();
        assert_eq!(counts, [(45, 45), (123, 123)]);
        assert_eq!(said.hellos[0].program.split(' ').next().map(|path| path.contains("python")), Some(true));
    }
    assert!(rank.end().status.success());
    drop(place);
}

#[test]
fn a_process_that_ends_says_so_and_a_killed_one_does_not() {
    let job = Job::alone("gemm=1", "ok(gemm_ex(512, 512, 512)); sync(); step(1); hold()");
    job.after_step(0, 1);
    let pid = job.ranks[0].pid();
    let Job { listener, ranks, place } = job;
    for rank in ranks {
        assert!(rank.end().status.success());
    }
    until("a goodbye", || listener.speaker(pid).filter(|speaker| speaker.goodbye));
    let killed =
        Program::start(&mut command(&place, 1, 0, &[], "ok(gemm_ex(512, 512, 512)); step(1); hold()"));
    listener.after_step(killed.pid(), 1);
    killed.signal("KILL");
    let pid = killed.pid();
    assert!(!killed.end().status.success());
    assert!(!listener.speaker(pid).unwrap().goodbye);
}

#[test]
fn steps_are_as_long_as_they_were() {
    let job = Job::alone(
        "gemm=1",
        "
for _ in range(12):
    time.sleep(0.02)
    step()
hold()",
    );
    let said = job.after_step(0, 12);
    let durations: Vec<Nanoseconds> = said
        .summaries
        .iter()
        .filter_map(|summary| {
            summary.steps.as_ref().filter(|steps| !steps.durations.is_empty())?.durations.median()
        })
        .collect();
    let counted: u64 =
        said.summaries.iter().filter_map(|summary| Some(summary.steps.as_ref()?.durations.count())).sum();
    assert_eq!(counted, 11, "from the first mark on");
    assert!(durations.iter().all(|median| median.milliseconds() >= 19.9), "{durations:?}");
    job.end();
}
