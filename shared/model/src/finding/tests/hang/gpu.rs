//! All ranks launched a collective, and wait for their GPUs.

mod load;
mod point_to_point;

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{
        Body, CallState, CommunicatorState, PrecedingWork, RankDigest, RankRecord, RankStacks, RecordedCall,
        RecordedCommunicator, StackFrame, ThreadStack,
    },
    id::{Rank, Step},
    unit::Moment,
};

use super::{
    super::cluster::{Cluster, Layout, only, wait},
    BUDGET, STALL,
};
use crate::{
    finding::{
        Class, Confidence, Finding, Log,
        evidence::hang::{By, GpuState},
    },
    job::{Job, RankView},
};

/// All ranks have launched one more collective in the communicator of all and in that of their stage, and
/// wait for the GPU. Their events show these states of the two.
fn launched(layout: Layout, ranks: u32, states: impl Fn(u32) -> [Option<CallState>; 2]) -> Vec<Finding> {
    waiting(layout, ranks, states).run(1).findings()
}

fn waiting(layout: Layout, ranks: u32, states: impl Fn(u32) -> [Option<CallState>; 2]) -> Cluster {
    let mut cluster = Cluster::new(5, ranks, layout, &[]).hang_from(STALL, |_, digest| {
        (0..digest.communicators.len()).for_each(|place| wait(digest, place, 1));
    });
    cluster.run(STALL + BUDGET);
    let records: Vec<_> = cluster
        .job()
        .ranks()
        .map(|(rank, view)| record(cluster.job(), rank, view, cluster.now(), states(rank.0)))
        .collect();
    cluster.fold(records.into_iter().map(Body::Record));
    cluster
}

/// The kernel on each rank's GPU, by a core dump.
fn dumped(job: &Job, kernel: impl Fn(u32) -> &'static str) -> Vec<Body> {
    let stacks = job.ranks().map(|(rank, view)| {
        let frame = StackFrame { function: kernel(rank.0).to_owned(), file: String::new(), line: 0 };
        let gpu = ThreadStack { name: "GPU 0".to_owned(), frames: vec![frame], ..ThreadStack::default() };
        let unread = RankStacks::unread(job.name().clone(), rank, view.pid(), String::new());
        Body::Stacks(RankStacks {
            read_at: view.last_report(),
            threads: vec![gpu],
            why: Vec::new(),
            ..unread
        })
    });
    stacks.collect()
}

fn record(job: &Job, rank: Rank, view: &RankView, now: Moment, states: [Option<CallState>; 2]) -> RankRecord {
    let lines = &view.latest().unwrap().communicators;
    let communicator = |line: &CommunicatorState| RecordedCommunicator {
        id: line.id,
        name: line.name.clone(),
        member: line.rank,
        size: line.size,
        closed: false,
    };
    let call = |(place, (line, state)): (usize, (&CommunicatorState, Option<CallState>))| {
        Some(RecordedCall {
            order: 1000 + place as u64,
            communicator: place as u16,
            number: Some(line.entered - 1),
            operation: Operation::AllReduce,
            datatype: DataType::Float32,
            reduction: Some(0),
            peer: None,
            bytes: 64 << 20,
            replays: 0,
            group: None,
            stream: 1,
            entered: Moment(now.0 - 12_000_000_000),
            state: state?,
            site: None,
        })
    };
    RankRecord {
        read_at: now,
        made: 1000,
        communicators: lines.iter().map(communicator).collect(),
        calls: lines.iter().zip(states).enumerate().filter_map(call).collect(),
        preceding: vec![PrecedingWork {
            order: 1000,
            work: "GEMM 4096x4096x4096 bf16".to_owned(),
            launched: Some(Moment(now.0 - 13_000_000_000)),
            stream: 1,
        }],
        ..RankRecord::unread(job.name().clone(), rank, view.pid(), String::new())
    }
}

#[test]
fn a_gpu_that_has_not_come_to_what_others_started_is_named() {
    use CallState::{Begun, Queued};
    for ranks in [2, 8, 64] {
        let found =
            launched(Layout::Data, ranks, |rank| [Some(if rank == 1 { Queued } else { Begun }), None]);
        let [finding] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((finding.class, &finding.ranks), (Class::NotStarted, &only(1)));
        let reported = finding.evidence.to_string();
        assert!(
            reported.contains("its GPU has not started it") && reported.contains(&(ranks - 1).to_string()),
            "{reported}"
        );
        assert_eq!(finding.collective.as_ref().unwrap().number, STALL * 36);
        // The GPU of each rank, the fewest first.
        let [behind, begun] = finding.evidence.gpus() else { panic!("{reported}") };
        assert_eq!(
            (&behind.ranks, behind.state, behind.by),
            (&only(1), GpuState::Behind, By::Events),
            "{reported}"
        );
        assert_eq!(
            (behind.work.as_deref(), behind.launched_s),
            (Some("GEMM 4096x4096x4096 bf16"), Some(14.0))
        );
        assert_eq!((begun.ranks.len() as u32, begun.state), (ranks - 1, GpuState::Begun));
        let all =
            if ranks == 2 { "rank 0: begun".to_owned() } else { format!("ranks 0, 2-{}: begun", ranks - 1) };
        assert!(
            reported.contains(
                "on the GPUs: rank 1: behind work up to GEMM 4096x4096x4096 bf16, launched 14 s ago (by events"
            ) && reported.contains(&all),
            "{reported}"
        );
    }
}

/// Once the kernels are read from a core dump, they are in the headline, the sentence and the advice. The age of the
/// launch grows with the hang.
#[test]
fn the_kernel_of_a_core_dump_is_named() {
    use CallState::{Begun, Queued};
    let kernels =
        |rank| if rank == 1 { "at::cuda::spin_kernel" } else { "ncclDevKernel_AllReduce_Sum_bf16_RING_LL" };
    let mut cluster = waiting(Layout::Data, 2, |rank| [Some(if rank == 1 { Queued } else { Begun }), None]);
    let dumps = dumped(cluster.job(), kernels);
    cluster.fold(dumps);
    let found = cluster.run(20).findings();
    let [finding] = &found[..] else { panic!("{found:#?}") };
    let number = STALL * 36;
    let headline = finding.headline_on(None);
    let named = format!("rank 1: GPU runs at::cuda::spin_kernel, collective {number} not started, ");
    assert!(headline.starts_with(&named), "{headline}");
    let reported = finding.evidence.to_string();
    assert!(reported.contains("rank 1: runs at::cuda::spin_kernel (by a core dump), behind"), "{reported}");
    assert!(
        reported.contains("rank 0: runs ncclDevKernel_AllReduce_Sum_bf16_RING_LL (by a core dump), begun"),
        "{reported}"
    );
    assert!(reported.contains("launched 33 s ago (by events"), "{reported}");
    assert_eq!(finding.advice, "look at what launches at::cuda::spin_kernel, and at why it does not end");
}

/// The state is the same on all GPUs, or is unknown for one.
#[test]
fn a_collective_that_all_gpus_started_or_none_is_said_of_no_rank() {
    for states in [[CallState::Begun; 2], [CallState::Queued; 2], [CallState::Begun, CallState::Enqueued]] {
        let found = launched(Layout::Data, 8, |rank| [Some(states[usize::from(rank == 1)]), None]);
        assert_eq!((found[0].class, found[0].ranks.len()), (Class::InKernel, 8), "{states:?}");
    }
}

/// No event shows whether the other GPUs have started it.
#[test]
fn a_gpu_behind_its_own_work_is_named_even_if_the_others_states_are_unknown() {
    use CallState::{Enqueued, Queued};
    let found = launched(Layout::Data, 8, |rank| [Some(if rank == 1 { Queued } else { Enqueued }), None]);
    assert_eq!((found[0].class, &found[0].ranks), (Class::NotStarted, &only(1)));
    assert_eq!(found[0].confidence, Confidence::Guess);
    let reported = found[0].evidence.to_string();
    assert!(reported.contains("whether the other GPUs have is unknown"), "{reported}");
}

/// Rank 1 may wait in an earlier collective, and so for another rank.
#[test]
fn a_gpu_behind_a_collective_that_may_still_run_is_not_named() {
    use CallState::{Enqueued, Queued};
    let states = |rank| if rank == 1 { [Some(Enqueued), Some(Queued)] } else { [Some(Enqueued), None] };
    let found = launched(Layout::Pipeline { stages: 2 }, 8, states);
    assert_ne!((found[0].class, &found[0].ranks), (Class::NotStarted, &only(1)), "{found:#?}");
}

/// Rank 0 has not started the collective that all others started. It waits in the collective of its stage,
/// which rank 1 has not started either.
#[test]
fn a_gpu_that_waits_for_another_is_not_named() {
    use CallState::{Begun, Queued};
    let found = launched(Layout::Pipeline { stages: 2 }, 8, |rank| match rank {
        0 => [Some(Queued), Some(Begun)],
        1 => [Some(Queued), Some(Queued)],
        2 | 3 => [Some(Queued), Some(Begun)],
        _ => [Some(Begun), None],
    });
    assert_eq!((found[0].class, &found[0].ranks), (Class::NotStarted, &only(1)), "{found:#?}");
}

/// A rank that compiles waits for no GPU. If all ranks wait and their calls diverge, the report need not
/// wait.
#[test]
fn diverging_calls_in_the_first_step_are_reported_before_a_minute() {
    let found = |compiles: Option<u32>| {
        let change = move |rank: u32, digest: &mut RankDigest| {
            digest.step = Some(Step(0));
            (digest.communicators[0].entered, digest.communicators[0].completed) = (0, 0);
            wait(digest, 0, 1);
            if compiles == Some(rank) {
                digest.inside.clear();
            }
        };
        let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(0, change);
        cluster.run(14);
        let records: Vec<_> = cluster
            .job()
            .ranks()
            .map(|(rank, view)| {
                let state = [Some(CallState::Begun), None];
                let mut record = record(cluster.job(), rank, view, cluster.now(), state);
                if rank == Rank(1) {
                    record.calls[0].bytes += 4;
                }
                record
            })
            .collect();
        cluster.fold(records.into_iter().map(Body::Record));
        cluster.run(1).findings()
    };
    let reported = found(None);
    let [finding] = &reported[..] else { panic!("{reported:#?}") };
    assert_eq!((finding.class, &finding.ranks), (Class::Mismatch, &only(1)));
    assert_eq!(found(Some(6)), []);
}

#[test]
fn a_hang_of_which_more_becomes_known_is_one_finding() {
    use CallState::{Begun, Queued};
    let found = launched(Layout::Data, 2, |rank| [Some(if rank == 1 { Queued } else { Begun }), None]);
    let known = Finding { class: Class::InKernel, ranks: vec![Rank(0), Rank(1)], ..found[0].clone() };
    let mut log = Log::default();
    let began = Moment(1_000_000_000);
    log.follow(&[known], began, began);
    log.follow(&found, Moment(began.0 * 31), began);
    assert_eq!((log.since(&found[0]), log.ended().count()), (Some(began), 0));
    log.follow(&[], Moment(began.0 * 40), began);
    let ended: Vec<_> = log.ended().collect();
    assert_eq!(
        ended.iter().map(|hang| (hang.class, hang.began_at)).collect::<Vec<_>>(),
        [(Class::NotStarted, 1.0)]
    );
}
