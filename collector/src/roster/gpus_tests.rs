use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{CommunicatorState, GemmTotals, Launches, Life, StepSource, TimedBy},
    gemm::{ComputeType, GemmShape, Routine},
    histogram::Histogram,
    id::{CommunicatorId, DeviceIndex, DeviceUuid, JobName, Pid, Sequence, Step},
    unit::Nanoseconds,
};

use super::*;

const PROCESS: Rank = Rank(0);

fn at(seconds: u64) -> Moment {
    Moment(1_000_000_000_000 + seconds * 1_000_000_000)
}

fn who() -> Identity {
    Identity(b"x".to_vec())
}

fn gpu(device: u32) -> Rank {
    PROCESS.of_gpu(DeviceIndex(device))
}

fn info(rank: Rank) -> RankInfo {
    RankInfo {
        job: "j".into(),
        rank,
        world_size: 1,
        local_rank: None,
        pid: Pid(std::process::id()),
        started: at(0),
        program: "train".to_owned(),
        version: "1".to_owned(),
        ledger: None,
    }
}

/// A summary of two GPUs. A GEMM takes one millisecond on `first`, and two on the other.
fn summary(devices: [u32; 2], gemms: u64) -> Summary {
    let shape = GemmShape {
        m: 1000,
        n: 1000,
        k: 500,
        batch: 1,
        datatype: DataType::Bfloat16,
        compute: ComputeType::Float32,
        transposed: (false, false),
        routine: Routine::Gemm,
    };
    let communicators = [0, 1].map(|rank| CommunicatorState {
        id: CommunicatorId(9),
        parent: None,
        name: String::new(),
        rank,
        size: 2,
        entered: 5,
        enqueued: 5,
        completed: 5,
        last_operation: Some(Operation::AllReduce),
        last_bytes: 4,
    });
    let samples = [0, 1].map(|communicator| CollectiveSample {
        communicator,
        sequence: Sequence(3),
        operation: Operation::AllReduce,
        bus_bytes: 4,
        duration: Nanoseconds(100 + u64::from(communicator)),
    });
    let gpus = [0, 1].map(|place: u8| GpuSummary {
        index: DeviceIndex(devices[usize::from(place)]),
        name: "H200".to_owned(),
        uuid: Some(DeviceUuid([place; 16])),
        gemms: vec![GemmTotals {
            shape,
            count: gemms,
            timed: gemms,
            timed_for: Nanoseconds(gemms * 1_000_000 * (u64::from(place) + 1)),
            durations: Histogram::new(),
        }],
        communicators: vec![place],
        launches: Launches { gemms, ..Launches::default() },
        memory_held: 100 + u64::from(place),
        ..GpuSummary::default()
    });
    let steps = Steps {
        source: StepSource::Marked,
        completed: Step(gemms),
        at: at(1),
        durations: Histogram::new(),
        timed_by: TimedBy::Host,
        optimizer: String::new(),
        work: Work { tokens: 7, ..Work::default() },
    };
    let hook = HookHealth { enabled: true, dropped_records: 3, ..HookHealth::default() };
    Summary {
        interval: Nanoseconds(1_000_000_000),
        steps: Some(steps),
        communicators: communicators.into(),
        samples: samples.into(),
        gpus: gpus.into(),
        hook,
        ..Summary::default()
    }
}

fn job() -> JobName {
    "j".into()
}

#[test]
fn each_gpu_of_a_process_is_a_rank_with_figures_of_its_own() {
    let mut roster = Roster::default();
    roster.hello(&who(), 0, info(PROCESS), at(0));
    roster.hello(&who(), 1, info(gpu(0)), at(1));
    let effects = roster.summary(&who(), 2, summary([0, 1], 10), at(2));
    let joined = Effect::Publish(Box::new(Body::Event(Event::Joined(info(gpu(1))))));
    assert!(effects.contains(&joined), "{effects:?}");
    let digests = roster.digests(at(3)).remove(0).ranks;
    assert_eq!(digests.iter().map(|digest| digest.rank).collect::<Vec<_>>(), [gpu(0), gpu(1)]);
    let [own, other] = &digests[..] else { panic!("two ranks") };
    let tflops =
        |digest: &xpu_wire::frame::RankDigest| digest.gemm_timed_flops / digest.gemm_timed_for.0 as f64 / 1e3;
    assert!((tflops(own) - 1.0).abs() < 1e-9 && (tflops(other) - 0.5).abs() < 1e-9);
    for (digest, rank) in [(own, 0), (other, 1)] {
        assert_eq!(digest.communicators.iter().map(|state| state.rank).collect::<Vec<_>>(), [rank]);
        let samples: Vec<_> = digest.samples.iter().map(|one| (one.communicator, one.duration.0)).collect();
        assert_eq!(samples, [(0, 100 + u64::from(rank))]);
        assert_eq!((digest.step, digest.launches.gemms), (Some(Step(10)), 10));
        assert_eq!(digest.memory_held, 100 + u64::from(rank));
    }
    assert_eq!([own, other].map(|digest| (digest.work.tokens, digest.dropped_records)), [(7, 3), (0, 0)]);
    let uuids = [gpu(0), gpu(1)].map(|rank| roster.detail(&job(), rank).unwrap().summary.device_uuid);
    assert_eq!(uuids, [0, 1].map(|place| Some(DeviceUuid([place; 16]))));
}

#[test]
fn orders_reach_a_process_once_whichever_of_its_gpus_is_named() {
    let mut roster = Roster::default();
    roster.hello(&who(), 0, info(gpu(0)), at(0));
    roster.summary(&who(), 1, summary([0, 1], 10), at(1));
    assert_eq!(roster.identities(&job()), [who()]);
    for named in [gpu(0), gpu(1), PROCESS] {
        assert_eq!(roster.workers_named(&job(), &[named]), [who()], "{named}");
        let answering: Vec<_> =
            roster.subjects(&job(), &[named]).iter().map(|subject| subject.rank).collect();
        assert_eq!(answering, [gpu(0)], "{named}");
    }
    assert_eq!(roster.workers_named(&job(), &[Rank(1)]), []);
    assert_eq!(roster.records(&job(), &[], 1, at(2)).unwrap().len(), 1);
}

#[test]
fn the_gpus_of_a_process_end_with_it_and_go_when_it_uses_others() {
    let mut roster = Roster::default();
    roster.hello(&who(), 0, info(gpu(0)), at(0));
    roster.summary(&who(), 1, summary([0, 1], 10), at(1));
    roster.summary(&who(), 2, summary([0, 2], 20), at(2));
    let ranks = |roster: &Roster| {
        let ranks = roster.snapshot().remove(0).ranks;
        ranks.iter().map(|rank| (rank.digest.rank, rank.digest.life)).collect::<Vec<_>>()
    };
    assert_eq!(ranks(&roster), [(gpu(0), Life::Alive), (gpu(2), Life::Alive)]);
    roster.goodbye(&who(), at(3));
    assert_eq!(ranks(&roster), [(gpu(0), Life::Ended), (gpu(2), Life::Ended)]);
    roster.hello(&who(), 3, info(Rank(1)), at(4));
    assert_eq!(ranks(&roster), [(Rank(1), Life::Alive)], "the process has another place");
}
