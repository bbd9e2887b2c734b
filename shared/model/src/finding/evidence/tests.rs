//! Every kind of evidence: its sentence has the figures of the documents, each with its unit in its name, and
//! the documentation lists all of them.

use std::collections::BTreeSet;

use xpu_wire::{
    collective::Operation,
    frame::{Ending, MemoryGrowth, RankExit, Throttle, Xid},
    id::{CommunicatorId, Pid, Rank, Step},
    ledger::Call,
    unit::{Moment, Nanoseconds},
};

use super::{
    cost::{Cause, HostWork, Straggler},
    device::{FullMemory, GrowingMemory, XidErrors},
    exit::Exited,
    hang::*,
    link::SlowLink,
    pace::{LateLaunches, PastRun, Pauses, Regression, SlowerPart},
    slow::*,
    *,
};
use crate::finding::{Clocks, CollectiveCall, Doing, HeldClock, Witness};

/// The notation of each unit in sentences, between a figure's name and its text.
const COUNTED: [&str; 32] = [
    "ranks_seen",
    "world_size",
    "ranks_started",
    "queued_collectives",
    "others_queued_collectives",
    "ranks_compared",
    "groups_compared",
    "communicator_ranks",
    "slow_communicators",
    "known_communicators",
    "times_usual_work",
    "collectives_timed",
    "collectives_last",
    "waits_per_step",
    "usual_waits_per_step",
    "pauses",
    "xid",
    "pid",
    "step",
    "exit_code",
    "signal",
    "ranks_followed",
    "ranks_waiting",
    "ranks_unseen",
    "ranks_alike",
    "ranks_done",
    "ranks_launched",
    "communicators_alike",
    "collective_number",
    "other_collective_number",
    "calls",
    "usual_calls",
];

const UNITS: [&str; 10] =
    ["_ms", "_ms_per_step", "_s", "_pct", "_tflops", "_gb_s", "_mhz", "_c", "_w", "_bytes"];

fn collective() -> CollectiveCall {
    CollectiveCall {
        communicator: "9ca792c9".to_owned(),
        name: "dp".to_owned(),
        number: 720,
        operation: Some("AllReduce".to_owned()),
        bytes: Some(64 << 20),
    }
}

fn straggler(cause: Cause) -> Evidence {
    Evidence::Straggler(Straggler {
        rank: Rank(5),
        host: "a".into(),
        pct: 18.0,
        error_pct: 1.5,
        step_ms: Some(120.0),
        timed: 130,
        last: 128,
        tflops: Some((639.8, 640.2)),
        cause,
        explained_pct: None,
    })
}

#[test]
fn a_large_part_of_a_delay_without_a_cause_is_reported() {
    for (pct, reported) in [(60.0, true), (95.0, false)] {
        let Evidence::Straggler(known) = straggler(Cause::MoreWork { times: 1.25 }) else { unreachable!() };
        let sentence = Straggler { explained_pct: Some(pct), ..known }.to_string();
        let ends = "; that explains 60 % of the delay, the rest is unexplained";
        assert_eq!(sentence.ends_with(ends), reported, "{sentence}");
    }
}

/// A thread that holds the GIL is then in the advice.
#[test]
fn a_delay_is_mostly_unexplained_until_a_cause_accounts_for_half_of_it() {
    for (explained_pct, expected) in [(None, true), (Some(40.0), true), (Some(60.0), false)] {
        let Evidence::Straggler(known) = straggler(Cause::Unknown) else { unreachable!() };
        let evidence = Evidence::Straggler(Straggler { explained_pct, ..known });
        assert_eq!(evidence.is_mostly_unexplained(), expected, "{evidence}");
        assert_eq!(Evidence::Aged(Box::new(evidence), 9.0).is_mostly_unexplained(), expected);
    }
}

/// Evidence, and some figures with their text in the sentence.
type Case = (Evidence, Vec<(&'static str, &'static str)>);

/// At least one of each, with the figures' text.
#[expect(clippy::too_many_lines, reason = "it is a table")]
fn all() -> Vec<Case> {
    let ranks = vec![Rank(5)];
    let who = || Named { ranks: vec![Rank(5)], worst: Rank(5), host: "a".into() };
    let rates = Rates { tflops: 400.25, usual_tflops: 640.4, ranks: Some(8) };
    let arrival = |is_cost| Arrival {
        waiting: Some(Waiting {
            last_pct: 98.0,
            loss: Loss { pct: 18.0, ms_of_step: Some((21.6, 120.0)) },
            is_cost,
            behind: None,
        }),
        as_of_s: Some(12.0),
    };
    let held = HeldClock {
        mhz: 1200.0,
        usual_mhz: 1755.0,
        reasons: Throttle::SOFTWARE_THERMAL,
        temperature_c: Some(88),
    };
    let exit = |ending| {
        Evidence::Exited(Exited {
            rank: Rank(3),
            host: "a".into(),
            pid: Pid(4003),
            step: Some(Step(20)),
            ago_s: 2.0,
            was_seen: true,
            exit: Some(Box::new(RankExit {
                job: "j".into(),
                rank: Rank(3),
                pid: Pid(4003),
                at: Moment(0),
                step: Some(Step(20)),
                ending,
                exception: None,
                error: None,
                kernel: None,
                memory: None,
                asked: None,
            })),
            followers: vec![Rank(0), Rank(1)],
            by_sigterm: 0,
        })
    };
    let slow = |clocks| Evidence::SlowGemms(SlowGemms { who: who(), rates, clocks, arrival: arrival(true) });
    let hung_s = 12.0;
    vec![
        (
            slow(Clocks::Held(held.clone())),
            vec![
                ("gemm_tflops", "at 400.2 TFLOPS"),
                ("usual_gemm_tflops", "the 640.4 median"),
                ("below_pct", "38 % below"),
                ("ranks_compared", "of 8 ranks"),
                ("sm_clock_mhz", "1200 MHz"),
                ("usual_sm_clock_mhz", "instead of 1755"),
                ("temperature_c", "88 °C"),
                ("last_pct", "98 % of its collectives"),
                ("step_ms", "a 120.0 ms step"),
                ("as_of_s", "as of 12 s ago"),
            ],
        ),
        (
            slow(Clocks::Well { mhz: 1755.0, usual_mhz: 1750.0 }),
            vec![("below_pct", "38 % below"), ("last_pct", "98 % of its collectives")],
        ),
        (
            Evidence::LateHost(LateHost { who: who(), rates, arrival: arrival(false) }),
            vec![("late_ms_per_step", "21.6 ms of a"), ("step_ms", "a 120.0 ms step")],
        ),
        (
            Evidence::MoreWork(MoreWork { who: who(), times: 1.5, rates, arrival: arrival(true) }),
            vec![("times_usual_work", "1.5x the FLOPs"), ("ranks_compared", "of the 8 ranks")],
        ),
        (
            straggler(Cause::Unknown),
            vec![
                ("step_ms", "a 120.0 ms step"),
                ("collectives_last", "at 128 of"),
                ("collectives_timed", "130 timed"),
            ],
        ),
        (
            straggler(Cause::SlowGemms {
                tflops: 400.0,
                usual_tflops: 640.0,
                is_past: true,
                clocks: Clocks::Held(held.clone()),
            }),
            vec![
                ("gemm_tflops", "400.0 TFLOPS"),
                ("below_pct", "38 % below its own earlier"),
                ("temperature_c", "88 °C"),
            ],
        ),
        (straggler(Cause::MoreWork { times: 1.25 }), vec![("times_usual_work", "1.25 times")]),
        (
            straggler(Cause::WaitsLess { pct: 2.0, usual_pct: 40.0 }),
            vec![("blocked_pct", "GPU 2 %"), ("usual_blocked_pct", "others' 40 %")],
        ),
        (
            straggler(Cause::MoreWaits { per_step: 21.0, usual_per_step: 1.0 }),
            vec![("waits_per_step", "21 times a step"), ("usual_waits_per_step", "others' 1 times")],
        ),
        (
            straggler(Cause::HostWork { work: HostWork::DataLoading, pct: 40.0, usual_pct: 2.0 }),
            vec![("data_loading_pct", "takes 40 % of its"), ("usual_data_loading_pct", "2 % of the others'")],
        ),
        (
            straggler(Cause::HostWork { work: HostWork::GarbageCollection, pct: 30.0, usual_pct: 3.0 }),
            vec![("garbage_collection_pct", "take 30 %"), ("usual_garbage_collection_pct", "3 % of")],
        ),
        (
            straggler(Cause::HostWork { work: HostWork::Copies, pct: 50.0, usual_pct: 1.0 }),
            vec![("copies_pct", "for take 50 %"), ("usual_copies_pct", "1 % of the")],
        ),
        (
            Evidence::Pauses(Pauses {
                ranks: ranks.clone(),
                lost_pct: 22.0,
                window_s: 28.0,
                pauses: 5.0,
                late: None,
            }),
            vec![("lost_pct", "22 % of"), ("window_s", "last 28 s"), ("pauses", "5 of them")],
        ),
        (
            Evidence::Pauses(Pauses {
                ranks: ranks.clone(),
                lost_pct: 22.0,
                window_s: 28.0,
                pauses: 5.0,
                late: Some(LateLaunches { ranks: ranks.clone(), queued: 4.0, others_queued: 26.0 }),
            }),
            vec![
                ("lost_pct", "22 % of"),
                ("window_s", "last 28 s"),
                ("pauses", "5 of them"),
                ("queued_collectives", "4 collectives queued"),
                ("others_queued_collectives", "26 on the others"),
            ],
        ),
        (
            Evidence::PastRun(PastRun {
                step_ms: 108.0,
                past_step_ms: 100.0,
                day: "Fri 20 Nov".to_owned(),
                gpu: " on NVIDIA H100".to_owned(),
                when: "from the first step".to_owned(),
                why: "no single rank is later than in that run".to_owned(),
            }),
            vec![
                ("step_ms", "take 108.0 ms"),
                ("past_step_ms", "the 100.0 ms of"),
                ("longer_pct", "8 % more"),
            ],
        ),
        (
            Evidence::Regression(Regression {
                lacks_cpu: None,
                before_ms: 100.0,
                after_ms: 130.0,
                is_mean: false,
                since_s: 40.0,
                work_pct: Some(5.0),
                rate_pct: Some(21.0),
                is_compute: true,
                slower: Some(SlowerPart { ranks: Vec::new(), pct: 40.0 }),
                clocks: Some(held),
                late: None,
            }),
            vec![
                ("step_ms", "have taken 130.0 ms"),
                ("before_step_ms", "the 100.0 ms before"),
                ("longer_pct", "30 % more"),
                ("more_work_pct", "+5 % FLOPs"),
                ("slower_gemms_pct", "21 % fewer TFLOPS"),
                ("slower_ranks_pct", "on about 40 % of the ranks"),
                ("sm_clock_mhz", "SM clocks at 1200 MHz"),
                ("usual_sm_clock_mhz", "of 1755, held down"),
                ("temperature_c", "88 °C"),
            ],
        ),
        (
            Evidence::SlowLink(SlowLink {
                operation: Operation::AllReduce,
                communicator: CommunicatorId(1),
                size: 2,
                gb_s: 100.0,
                usual_gb_s: 350.0,
                groups: Some(7),
                slow: 3,
                known: 8,
                passes: Some("b".into()),
            }),
            vec![
                ("bus_gb_s", "moves 100.0 GB/s"),
                ("usual_bus_gb_s", "the 350.0"),
                ("below_pct", "71 % below"),
                ("communicator_ranks", "(2 ranks)"),
                ("groups_compared", "of 7 similar groups"),
                ("known_communicators", "others of 8"),
            ],
        ),
        (
            Evidence::FullMemory(FullMemory {
                ranks: ranks.clone(),
                worst: Rank(5),
                host: "a".into(),
                free: 1 << 20,
                total: 1 << 30,
            }),
            vec![("free_bytes", "1 MiB left"), ("total_bytes", "of 1 GiB")],
        ),
        (
            Evidence::GrowingMemory(GrowingMemory {
                ranks: ranks.clone(),
                worst: Rank(5),
                host: "a".into(),
                growth: MemoryGrowth {
                    per_step: 12.0 * 1_048_576.0,
                    least: 11.0 * 1_048_576.0,
                    most: 13.0 * 1_048_576.0,
                    steps: 600,
                    over: Nanoseconds(300_000_000_000),
                },
                free: 24 << 30,
                left_s: 2_400.0,
            }),
            vec![
                ("growth_per_step_bytes", "12 MiB a step"),
                ("least_per_step_bytes", "11 MiB to"),
                ("most_per_step_bytes", "to 13 MiB"),
                ("free_bytes", "24 GiB are free"),
                ("left_s", "in about 40 m"),
            ],
        ),
        (
            Evidence::Xid(XidErrors {
                rank: Rank(5),
                host: "a".into(),
                xid: Xid { code: 79, at: Moment(0) },
                ago_s: 3.0,
            }),
            vec![("xid", "Xid 79"), ("ago_s", "3 s ago")],
        ),
        (
            exit(Ending::Code(3)),
            vec![("exit_code", "code 3"), ("pid", "pid 4003"), ("step", "at step 20"), ("ago_s", "2 s ago")],
        ),
        (
            exit(Ending::OutOfMemory { certain: true, source: "kernel log".to_owned() }),
            vec![("ago_s", "2 s ago")],
        ),
        (
            Evidence::Stopped(Stopped {
                ranks: ranks.clone(),
                first: Rank(5),
                host: "a".into(),
                pid: Pid(4005),
                step: Some(Step(20)),
                hung_s,
            }),
            vec![("pid", "pid 4005"), ("step", "step 20"), ("hung_s", "hung for 12 s")],
        ),
        (
            Evidence::Forming(Forming {
                what: Together::Create,
                inside: vec![Rank(0), Rank(1)],
                hung_s,
                missing: Missing::Ranks {
                    ranks: ranks.clone(),
                    doing: Doing::Inside(Call::StreamSynchronize, 9.0),
                },
            }),
            vec![("ranks_waiting", "2 ranks have been"), ("hung_s", "for 12 s"), ("inside_s", "for 9 s")],
        ),
        (
            Evidence::Forming(Forming {
                what: Together::Create,
                inside: ranks.clone(),
                hung_s,
                missing: Missing::Unseen((6..9).map(Rank).collect()),
            }),
            vec![("ranks_unseen", "3 ranks of the job were never seen: ranks 6-8")],
        ),
        (
            Evidence::Forming(Forming {
                what: Together::Meet("init_process_group"),
                inside: vec![Rank(0)],
                hung_s,
                missing: Missing::Ranks { ranks: ranks.clone(), doing: Doing::Outside },
            }),
            vec![("ranks_waiting", "1 rank has waited for other ranks in init_process_group for 12 s")],
        ),
        (
            Evidence::NotEntered(NotEntered {
                ranks: ranks.clone(),
                collective: collective(),
                waiting: 7,
                hung_s,
                called_at: Some("train.py:45 step".to_owned()),
                doing: Doing::Outside,
            }),
            vec![
                ("ranks_waiting", "7 ranks have waited"),
                ("hung_s", "for 12 s"),
                ("collective_number", "number 720"),
                ("collective_bytes", "64 MiB"),
            ],
        ),
        (
            Evidence::Deadlock(Deadlock {
                ranks: vec![Rank(0), Rank(1)],
                here: collective(),
                there: CollectiveCall { number: 7, bytes: Some(1 << 10), ..collective() },
                hung_s,
            }),
            vec![("other_collective_number", "number 7 "), ("other_collective_bytes", "1 KiB")],
        ),
        (
            Evidence::Mismatch(Mismatch {
                called: vec![(ranks.clone(), Operation::AllGather, 1 << 11)],
                collective: collective(),
                most: Some(7),
                hung_s,
            }),
            vec![("ranks_alike", "where 7 ranks"), ("called_bytes", "2 KiB")],
        ),
        (
            Evidence::OutOfStep(OutOfStep {
                ranks: ranks.clone(),
                most: 754,
                least: 729,
                others: 7,
                collective: collective(),
                hung_s,
            }),
            vec![
                ("calls", "called 754"),
                ("usual_calls", "called 729"),
                ("ranks_alike", "7 ranks"),
                ("hung_s", "for 12 s"),
            ],
        ),
        (
            Evidence::NotLaunched(NotLaunched {
                ranks: ranks.clone(),
                collective: collective(),
                call: Call::GroupEnd,
                inside_s: 11.0,
                hung_s,
            }),
            vec![("inside_s", "for 11 s")],
        ),
        (
            Evidence::Partial(Partial { ranks: ranks.clone(), collective: collective(), others: 7, hung_s }),
            vec![("ranks_done", "ended on 7 ranks"), ("hung_s", "for 12 s")],
        ),
        (
            Evidence::NotStarted(NotStarted {
                ranks: ranks.clone(),
                started: 7,
                collective: collective(),
                hung_s,
                witness: Witness::Event,
                after: Some(After {
                    operation: Operation::AllGather,
                    place: Some("train.py:80 forward".to_owned()),
                    until: Some("train.py:92 step".to_owned()),
                }),
            }),
            vec![("ranks_started", "GPUs of 7 other ranks have"), ("hung_s", "has hung for 12 s")],
        ),
        (
            Evidence::NotStarted(NotStarted {
                ranks: ranks.clone(),
                started: 7,
                collective: collective(),
                hung_s,
                witness: Witness::Idle { others_busy_pct: 99.0 },
                after: None,
            }),
            vec![("others_busy_pct", "runs nothing and that those of the others are busy 99 %")],
        ),
        (
            Evidence::NotStarted(NotStarted {
                ranks: ranks.clone(),
                started: 1,
                collective: collective(),
                hung_s,
                witness: Witness::Power { watts: 512.0, others_watts: 150.0 },
                after: None,
            }),
            vec![("power_w", "takes 512 W"), ("others_power_w", "that of the other is busy at 150 W")],
        ),
        (
            Evidence::InKernel(InKernel {
                ranks: ranks.clone(),
                launched: 8,
                collective: collective(),
                hung_s,
                alike: 2,
            }),
            vec![("ranks_launched", "all 8 ranks"), ("communicators_alike", "of 2 similar")],
        ),
        (
            Evidence::Diverged(Diverged {
                sentence: "rank 5 called one AllReduce (492 B of f32) more, number 91".to_owned(),
                number: Some(91),
                hung_s,
                lacks: Some((Rank(5), Doing::Inside(Call::StreamSynchronize, 9.0))),
            }),
            vec![
                ("collective_number", "number 91"),
                ("hung_s", "has hung for"),
                ("inside_s", "rank 5: it has been inside cudaStreamSynchronize for 9 s"),
            ],
        ),
        (
            Evidence::Exchanging(Exchanging {
                ranks: (0..4).map(Rank).collect(),
                communicator: "9ca792c9".to_owned(),
                hung_s,
                messages: Messages::Unread,
            }),
            vec![("ranks_waiting", "all 4 ranks of communicator 9ca792c9"), ("hung_s", "hung for 12 s")],
        ),
        (
            Evidence::Exchanging(Exchanging {
                ranks: (0..8).map(Rank).collect(),
                communicator: "9ca792c9".to_owned(),
                hung_s,
                messages: Messages::NotReached(ranks.clone()),
            }),
            vec![("ranks_waiting", "all 8 ranks of communicator 9ca792c9")],
        ),
        (
            Evidence::Idle(Idle {
                ranks: (0..4).map(Rank).collect(),
                step: Some(Step(300)),
                usual_step_ms: Some(24.94),
                first: Doing::Inside(Call::StreamSynchronize, 125.0),
                hung_s,
            }),
            vec![
                ("step", "ranks 0-3 have completed no step for 12 s after step 300"),
                ("usual_step_ms", "a step usually took 24.9 ms"),
                ("hung_s", "; rank 0 has been inside cudaStreamSynchronize for 125 s"),
            ],
        ),
        (
            Evidence::Elsewhere(Elsewhere {
                seen: 2,
                world: 4,
                first: Rank(1),
                doing: Doing::Inside(Call::StreamSynchronize, 11.0),
                hung_s,
            }),
            vec![
                ("ranks_seen", "2 of 4 ranks are seen here"),
                ("world_size", "2 of 4"),
                (
                    "hung_s",
                    "make no progress for 12 s; rank 1 has been inside cudaStreamSynchronize for 11 s",
                ),
            ],
        ),
        (
            Evidence::Unmatched(Unmatched { ranks, calls: 90, usual: 91, of: 4, hung_s }),
            vec![
                ("calls", "rank 5 called 90"),
                ("usual_calls", "called 91"),
                ("ranks_compared", "most of 4"),
            ],
        ),
    ]
}

#[test]
fn every_kind_says_its_figures_in_its_sentence() {
    let mut kinds = BTreeSet::new();
    for (evidence, said) in all() {
        kinds.insert(format!("{evidence:?}").split('(').next().unwrap().to_owned());
        let (sentence, figures) = (evidence.to_string(), evidence.figures());
        for (name, words) in said {
            let value = figures.get(name).unwrap_or_else(|| panic!("{name} is missing: {figures:?}"));
            assert!(value.is_finite(), "{name}");
            assert!(sentence.contains(words), "{name} as {words:?}: {sentence}");
        }
    }
    assert_eq!(kinds.len(), 27, "every kind has its turn: {kinds:?}");
}

/// A terminal of 80 columns shows the whole headline, with a sign before it.
#[test]
fn every_kind_has_a_headline_that_fits() {
    let ranks: Vec<_> = (1_016..1_024).map(Rank).collect();
    for (evidence, _) in all() {
        for (ranks, host) in
            [(&[Rank(5)][..], "node-2"), (&ranks[..], "gpu-a100-rack12-0127.cluster.example")]
        {
            let line = evidence.headline(ranks, Some(host));
            assert!(line.chars().count() <= headline::WIDTH, "{} columns: {line}", line.chars().count());
            let names_no_rank = matches!(
                evidence,
                Evidence::Regression(_)
                    | Evidence::PastRun(_)
                    | Evidence::SlowLink(_)
                    | Evidence::InKernel(_)
            );
            assert!(line.contains("rank") || names_no_rank, "who: {line}");
        }
    }
}

#[test]
fn a_headline_has_who_where_what_and_the_cost() {
    let slow = Evidence::SlowGemms(SlowGemms {
        who: Named { ranks: vec![Rank(6)], worst: Rank(6), host: "node-2.cluster".into() },
        rates: Rates { tflops: 384.6, usual_tflops: 500.0, ranks: Some(8) },
        clocks: Clocks::Unknown,
        arrival: Arrival {
            waiting: Some(Waiting {
                last_pct: 100.0,
                loss: Loss { pct: 18.7, ms_of_step: Some((28.1, 150.0)) },
                is_cost: true,
                behind: None,
            }),
            as_of_s: None,
        },
    });
    let reported = "rank 6 (node-2): GEMMs 23 % slow (385 of 500 TFLOPS), costs 28 ms a step";
    assert_eq!(slow.headline(&[Rank(6)], None), reported);
    let hang = Evidence::NotEntered(NotEntered {
        ranks: vec![Rank(3)],
        collective: CollectiveCall { number: 100, communicator: "ec6e3145".to_owned(), ..collective() },
        waiting: 7,
        hung_s: 68.0,
        called_at: None,
        doing: Doing::Outside,
    });
    let reported = "rank 3 (node-1) did not enter AllReduce 100 of ec6e3145: 7 ranks wait, 68 s";
    assert_eq!(hang.headline(&[Rank(3)], Some("node-1")), reported);
}

/// The details contain only what the headline leaves out.
#[test]
fn details_repeat_no_clause_of_the_headline() {
    let slow = straggler(Cause::WaitsLess { pct: 2.0, usual_pct: 40.0 });
    let headline = slow.headline(&[Rank(5)], None);
    assert_eq!(headline, "rank 5 (a): work reaches its GPU late, costs 22 ms a step");
    let details = slow.details(&headline);
    assert!(
        details.starts_with("the others wait for it alone at 128 of 130 timed collectives; "),
        "{details}"
    );
    let hang = Evidence::NotEntered(NotEntered {
        ranks: vec![Rank(3)],
        collective: collective(),
        waiting: 7,
        hung_s: 68.0,
        called_at: None,
        doing: Doing::Outside,
    });
    let headline = hang.headline(&[Rank(3)], Some("node-1"));
    assert!(headline.contains(": 7 ranks wait"), "{headline}");
    assert_eq!(hang.details(&headline), "it is in no CUDA or NCCL call");
    assert_eq!(hang.details(""), "7 ranks wait; it is in no CUDA or NCCL call");
    for (evidence, _) in all() {
        let headline = evidence.headline(&[Rank(5)], Some("a"));
        let details = evidence.details(&headline);
        assert!(
            details.split("; ").all(|clause| clause.is_empty() || !headline.contains(clause)),
            "{headline}: {details}"
        );
        assert!(details.len() <= evidence.to_string().len() + 40, "{details}");
    }
}

#[test]
fn every_figure_has_its_unit_in_its_name_and_is_documented() {
    let docs = include_str!("../../../../../docs/findings.md");
    for (evidence, _) in all() {
        let names: Vec<_> = evidence.figures().iter().map(|(name, _)| name).collect();
        assert!(!names.is_empty(), "{evidence}");
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "each once: {names:?}");
        for name in names {
            let unit = UNITS.iter().any(|unit| name.ends_with(unit));
            assert!(unit || COUNTED.contains(&name), "{name}: of which unit?");
            assert!(docs.contains(&format!("`{name}`")), "{name} is not in docs/findings.md");
        }
    }
}

#[test]
fn figures_have_no_noise() {
    let cases = [
        (0.0, 0.0),
        (0.000_123_456, 0.000_123_5),
        (7.000_000_000_000_001, 7.0),
        (-12.345_67, -12.35),
        (123_456.7, 123_457.0),
    ];
    for (value, reported) in cases {
        assert_eq!(rounded(value).to_string(), reported.to_string());
    }
    let mut figures = Figures::default();
    figures.put("unknown_pct", None);
    figures.put("infinite_pct", f64::INFINITY);
    figures.count("bytes", u64::from(u32::MAX));
    assert_eq!(figures.iter().collect::<Vec<_>>(), [("bytes", 4_294_967_295.0)]);
}
