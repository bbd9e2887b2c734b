mod gpu;

use xpu_wire::{
    collective::Operation,
    frame::{
        Body, CommunicatorState, Event, HostWork, Life, RankDigest, RankStacks, StackFrame, StepSource,
        ThreadStack,
    },
    id::{CommunicatorId, Rank},
    ledger::Call,
};

use super::cluster::{Cluster, Layout, hold, only, says, silent, wait};
use crate::{
    finding::{Class, Confidence, Finding, Kind, is_stuck},
    job::{Job, Jobs},
    status::{ExitCode, RankState, RankStatus, Status},
};

/// The second in which progress stops, and the second by which the reason is named.
const STALL: u64 = 20;
const BUDGET: u64 = 15;

/// The one finding of such a hang, at several sizes.
fn found(layout: Layout, change: impl Fn(u32, &mut RankDigest) + Copy + 'static) -> Finding {
    let mut last = None;
    for ranks in [8, 64, 1024] {
        let mut cluster = Cluster::new(5, ranks, layout, &[]).hang_from(STALL, change);
        if ranks > 64 {
            // A thousand simulated ranks take time; a short past suffices.
            cluster.second = STALL - 4;
        }
        let (mut found, seconds) = cluster.until_found(30);
        assert_eq!(found.len(), 1, "{ranks} ranks: {found:#?}");
        assert!(seconds <= BUDGET, "{ranks} ranks: {seconds} s");
        let finding = found.remove(0);
        assert_eq!(finding.kind, Kind::Hang);
        last = last.or(Some(finding));
    }
    last.unwrap()
}

#[test]
fn a_rank_that_did_not_enter_is_named_with_what_it_misses() {
    let finding = found(Layout::Data, |rank, digest| {
        if rank != 6 {
            wait(digest, 0, 1);
        }
    });
    assert_eq!(
        (finding.class, finding.ranks, finding.confidence),
        (Class::NotEntered, only(6), Confidence::Certain)
    );
    let missed = finding.collective.unwrap();
    assert_eq!((missed.communicator.as_str(), missed.number), ("9ca792c9", STALL * 9 * 4));
    assert_eq!((missed.operation.as_deref(), missed.bytes), (Some("AllReduce"), Some(64 << 20)));
    assert!(finding.evidence.to_string().contains("7 ranks have waited"), "{}", finding.evidence);
}

/// PyTorch's watchdog ends a rank that waits, and the launcher the others.
#[test]
fn a_hang_stays_the_reason_after_its_ranks_were_ended() {
    for by_snapshot in [false, true] {
        stays_the_reason(by_snapshot);
    }
}

/// The snapshot of another viewer may show the end first.
fn stays_the_reason(by_snapshot: bool) {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        if rank != 6 {
            wait(digest, 0, 1);
        }
    });
    let ends = |cluster: &mut Cluster, rank| {
        let (job, pid) = (cluster.job().name().clone(), cluster.job().rank(Rank(rank)).unwrap().pid());
        cluster.fold([Body::Event(Event::Life { job, rank: Rank(rank), pid, life: Life::Died })]);
    };
    let (hang, _) = cluster.until_found(30);
    cluster.run(5);
    if by_snapshot {
        let Body::Snapshot(mut snapshot) = cluster.simulation.snapshots(STALL).remove(0).body else {
            unreachable!()
        };
        let digest = &mut snapshot.jobs[0].ranks[0].digest;
        (digest.life, digest.heard) = (Life::Died, cluster.now());
        cluster.fold([Body::Snapshot(snapshot)]);
        assert_eq!(cluster.job().living(), 7);
    }
    ends(&mut cluster, 0);
    ends(&mut cluster, 6);
    let found = cluster.findings();
    let [found] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((found.kind, found.class, &found.ranks), (Kind::Hang, hang[0].class, &only(6)));
    assert!((found.since_s - hang[0].since_s - 5.0).abs() < 1.5, "{} {}", found.since_s, hang[0].since_s);
    let evidence = found.evidence.to_string();
    let (before, end) = evidence.split_once("; then rank 0 (").expect("its end is reported too");
    assert!(before.contains("7 ranks have waited") && end.contains("without an orderly exit"), "{evidence}");
}

/// A rank ends, and then the others wait for it.
#[test]
fn an_end_stays_the_reason_of_the_hang_that_follows() {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        if rank != 6 {
            wait(digest, 0, 1);
        }
    });
    cluster.second = STALL + 4;
    cluster.run(4);
    let (job, pid) = (cluster.job().name().clone(), cluster.job().rank(Rank(6)).unwrap().pid());
    cluster.fold([Body::Event(Event::Life { job, rank: Rank(6), pid, life: Life::Died })]);
    let found = cluster.findings();
    assert_eq!((found[0].kind, &found[0].ranks), (Kind::Exited, &only(6)), "{found:#?}");
}

/// The others entered several of them before they waited. The first missed one is reported.
#[test]
fn the_first_divergence_is_reported() {
    let finding = found(Layout::Data, |rank, digest| {
        if rank != 6 {
            wait(digest, 0, 4 - u64::from(rank == 2));
        }
    });
    assert_eq!((finding.class, finding.ranks), (Class::NotEntered, only(6)));
    let missed = finding.collective.unwrap();
    // It is of the same kind as the later ones. Its size is unknown.
    assert_eq!(
        (missed.number, missed.operation.as_deref(), missed.bytes),
        (STALL * 36, Some("AllReduce"), None)
    );
}

/// Rank 0 misses a collective of its stage; its stage waits there, the others in the communicator of all.
#[test]
fn a_rank_that_waits_for_the_culprit_is_not_the_culprit() {
    let finding = found(Layout::Pipeline { stages: 2 }, |rank, digest| {
        let first_stage = digest.communicators[1].id == CommunicatorId(0x9ca7_92ca_0000_0001);
        match rank {
            0 => {}
            _ if first_stage => wait(digest, 1, 1),
            _ => wait(digest, 0, 1),
        }
    });
    assert_eq!((finding.class, finding.ranks), (Class::NotEntered, only(0)));
}

/// All ranks made equally many sends and receives, and every collective has ended. This finding makes the
/// collector read the records of calls.
#[test]
fn ranks_that_all_wait_after_sends_and_receives_hang() {
    let finding = found(Layout::Data, |_, digest| {
        digest.launches.point_to_point = 90;
        hold(digest, Call::StreamSynchronize);
    });
    assert_eq!(
        (finding.class, finding.ranks.len(), finding.confidence),
        (Class::Unmatched, 8, Confidence::Guess)
    );
}

#[test]
fn a_rank_that_ended_early_is_named() {
    let finding = found(Layout::Data, |rank, digest| match rank {
        3 => digest.life = Life::Ended,
        _ => wait(digest, 0, 1),
    });
    assert_eq!((finding.class, finding.ranks), (Class::NotEntered, only(3)));
    assert!(finding.evidence.to_string().contains("it has ended"));
}

#[test]
fn a_stopped_process_is_named() {
    let finding = found(Layout::Data, |rank, digest| match rank {
        4 => silent(digest, xpu_wire::unit::Moment(1_800_000_000_000_000_000 + STALL * 1_000_000_000)),
        _ => wait(digest, 0, 1),
    });
    assert_eq!((finding.class, finding.ranks), (Class::Stopped, only(4)));
}

#[test]
fn two_orders_of_two_communicators_are_a_deadlock() {
    let other = |digest: &mut RankDigest| {
        let second = CommunicatorState { id: CommunicatorId(7 << 32), ..digest.communicators[0].clone() };
        digest.communicators.push(second);
    };
    let finding = found(Layout::Data, move |rank, digest| {
        other(digest);
        wait(digest, usize::from(rank == 1), 1);
    });
    assert_eq!(finding.class, Class::Deadlock);
    assert!(finding.ranks.contains(&Rank(1)) && finding.ranks.len() > 1);
    assert!(
        finding.evidence.to_string().contains("9ca792c9")
            && finding.evidence.to_string().contains("00000007")
    );
}

#[test]
fn the_minority_that_means_something_else_is_named() {
    for (operation, bytes) in [(Operation::AllReduce, 1 << 20), (Operation::Broadcast, 64 << 20)] {
        let finding = found(Layout::Data, move |rank, digest| {
            wait(digest, 0, 1);
            if rank == 0 {
                says(digest, operation, bytes);
            }
        });
        let Finding { class, ranks, confidence, .. } = finding;
        assert_eq!((class, ranks, confidence), (Class::Mismatch, only(0), Confidence::Certain));
    }
}

/// A rank omitted one call and continued. All called the collective in which the others wait, but the GPUs
/// execute different operations in it.
#[test]
fn a_rank_one_call_out_of_step_is_named_and_not_those_behind_it() {
    let finding = found(Layout::Data, |rank, digest| {
        wait(digest, 0, if rank == 6 { 34 } else { 9 });
    });
    let Finding { class, ranks, confidence, evidence, .. } = finding;
    assert_eq!((class, ranks, confidence), (Class::Mismatch, only(6), Confidence::Likely));
    let number = STALL * 36;
    for figure in [
        format!("{} collectives", number + 34),
        format!("7 ranks called {}", number + 9),
        format!("numbers {number} to {}", number + 8),
    ] {
        assert!(evidence.to_string().contains(&figure), "{figure}: {evidence}");
    }
}

/// The counts are the same, but most ranks are in Python: they did not enter the collective.
#[test]
fn most_that_are_in_no_call_did_not_enter() {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        wait(digest, 0, if rank == 6 { 34 } else { 9 });
        if rank != 6 {
            digest.inside.clear();
        }
    });
    assert_eq!(cluster.until_found(60).0[0].class, Class::NotEntered);
}

/// The counts are the same, but all called work is done: most ranks wait for kernels of their own.
#[test]
fn a_rank_without_unfinished_calls_is_not_out_of_step() {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        wait(digest, 0, if rank == 6 { 34 } else { 9 });
        digest.communicators[0].completed = STALL * 36 + 9;
    });
    assert_eq!(cluster.until_found(60).0[0].class, Class::NotEntered);
}

#[test]
fn one_against_one_is_undecided() {
    let mut cluster = Cluster::new(5, 2, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        wait(digest, 0, 1);
        says(digest, Operation::AllReduce, 64 << (20 - rank));
    });
    let (found, _) = cluster.until_found(BUDGET);
    assert_eq!((found[0].ranks.len(), found[0].confidence), (2, Confidence::Guess));
}

#[test]
fn a_rank_still_inside_the_call_did_not_launch() {
    let finding = found(Layout::Data, |rank, digest| {
        wait(digest, 0, 1);
        if rank == 2 {
            digest.communicators[0].enqueued -= 1;
            hold(digest, Call::GroupEnd);
        }
    });
    assert_eq!((finding.class, finding.ranks), (Class::NotLaunched, only(2)));
}

#[test]
fn a_collective_that_does_not_end_is_in_the_kernel() {
    let finding = found(Layout::Data, |_, digest| wait(digest, 0, 1));
    assert_eq!(finding.class, Class::InKernel);
    assert_eq!(finding.confidence, Confidence::Likely);
}

#[test]
fn a_rank_missing_from_a_new_communicator_is_named() {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        if rank != 7 {
            hold(digest, Call::CommunicatorInit);
        }
    });
    let (found, _) = cluster.until_found(60);
    assert_eq!((found[0].class, &found[0].ranks), (Class::Init, &only(7)));
}

/// Half of a job creates a communicator. Of the others, one rank is in no call, and the rest wait in a
/// collective.
#[test]
fn a_rank_in_no_call_keeps_others_from_creating_a_communicator() {
    let named = |ranks: u32, outside: &[u32]| {
        let outside = outside.to_vec();
        let mut cluster = Cluster::new(5, ranks, Layout::Data, &[]).hang_from(STALL, move |rank, digest| {
            if rank < ranks / 2 {
                hold(digest, Call::CommunicatorInit);
                digest.inside[0].waited = xpu_wire::unit::Nanoseconds(30_000_000_000);
            } else if !outside.contains(&rank) {
                hold(digest, Call::StreamSynchronize);
            }
        });
        let (found, _) = cluster.until_found(90);
        assert_eq!(found[0].class, Class::Init);
        found[0].ranks.clone()
    };
    assert_eq!(named(2, &[1]), only(1));
    assert_eq!(named(8, &[6]), only(6));
    // Any of these ranks may be missing.
    assert_eq!(named(8, &[4, 5, 6, 7]), [0, 1, 2, 3].map(Rank));
}

/// The rank has been inside a call since the job was first seen.
fn inside(digest: &mut RankDigest, call: Call) {
    hold(digest, call);
    digest.inside[0].waited.0 = digest.heard.0 - 1_800_000_000_000_000_000;
}

/// Before the first step, a missing rank has ended, or waits for a collective that the ranks creating the
/// communicator have not entered. A rank that is elsewhere in its program may load or compile, for a minute.
#[test]
fn a_certainly_missing_rank_is_named_at_once_in_the_first_seconds() {
    let named = |ranks: u32, missing: fn(&mut RankDigest)| {
        let mut cluster = Cluster::new(5, ranks, Layout::Data, &[]).hang_from(0, move |rank, digest| {
            digest.step = None;
            let line = &mut digest.communicators[0];
            (line.entered, line.enqueued, line.completed) = (0, 0, 0);
            if rank == 1 {
                missing(digest);
            } else {
                inside(digest, Call::CommunicatorInit);
            }
        });
        let (found, seconds) = cluster.until_found(90);
        assert_eq!((found[0].class, &found[0].ranks), (Class::Init, &only(1)), "{found:#?}");
        (seconds, found[0].confidence, found[0].evidence.to_string())
    };
    for ranks in [2, 8] {
        let (seconds, _, reported) = named(ranks, |digest| digest.life = Life::Ended);
        assert!(seconds <= BUDGET && reported.contains("rank 1: it has ended"), "{seconds} s: {reported}");
        let (seconds, confidence, reported) = named(ranks, |digest| {
            let line = &mut digest.communicators[0];
            (line.entered, line.enqueued) = (1, 1);
            inside(digest, Call::StreamSynchronize);
        });
        assert!(
            seconds <= BUDGET && reported.contains("inside cudaStreamSynchronize"),
            "{seconds} s: {reported}"
        );
        assert_eq!(confidence, if ranks == 2 { Confidence::Guess } else { Confidence::Likely });
        let (seconds, _, reported) = named(ranks, |digest| inside(digest, Call::StreamSynchronize));
        assert!(seconds >= 55, "a kernel of its own: {seconds} s: {reported}");
        let (seconds, _, reported) = named(ranks, |_| {});
        assert!(seconds >= 55, "{seconds} s: {reported}");
    }
}

/// The stacks of all ranks, each in a function of `torch/distributed/distributed_c10d.py`, or natively.
fn stacks(job: &Job, of: impl Fn(u32) -> &'static str) -> Vec<Body> {
    let stacks = job.ranks().map(|(rank, view)| {
        let function = of(rank.0).to_owned();
        let file = if function.contains("::") {
            "libtorch_cpu.so"
        } else {
            "/v/torch/distributed/distributed_c10d.py"
        };
        let frame = |function, file: &str| StackFrame { function, file: file.to_owned(), line: 0 };
        let frames = vec![frame("<module>".to_owned(), "/work/train.py"), frame(function, file)];
        let main = ThreadStack { main: true, frames, ..ThreadStack::default() };
        let unread = RankStacks::unread(job.name().clone(), rank, view.pid(), String::new());
        Body::Stacks(RankStacks {
            read_at: view.last_report(),
            threads: vec![main],
            why: Vec::new(),
            ..unread
        })
    });
    stacks.collect()
}

/// The ranks have launched something, and have no communicator yet. Only their stacks show that they wait.
#[test]
fn a_rank_that_does_not_come_to_a_rendezvous_is_named_after_a_minute() {
    let named_of = |ranks: u32, world: u32, of: fn(u32) -> &'static str| {
        let mut cluster = Cluster::new(5, ranks, Layout::Data, &[]).hang_from(0, move |_, digest| {
            digest.world_size = world;
            digest.step = None;
            digest.communicators.clear();
        });
        assert_eq!(cluster.run(30).findings(), []);
        let mut read = stacks(cluster.job(), of);
        // While the stack of one of them is missing, it may be that of a rank that waits too.
        let is_late = ranks == 8;
        let last = if is_late { read.pop() } else { None };
        cluster.fold(read);
        if let Some(Body::Stacks(last)) = &last {
            let why = vec!["no Python frames".to_owned()];
            cluster.fold([Body::Stacks(RankStacks { threads: Vec::new(), why, ..last.clone() })]);
            assert_eq!(cluster.run(50).findings(), []);
        }
        cluster.fold(last);
        let (found, seconds) = cluster.until_found(200);
        let found = found.into_iter().next()?;
        let soon = if is_late { 80..83 } else { 60..63 };
        assert!(soon.contains(&seconds), "{seconds} s: {found:#?}");
        assert_eq!((found.kind, found.class), (Kind::Hang, Class::Init));
        Some((found.ranks.iter().map(|rank| rank.0).collect::<Vec<_>>(), found.evidence.to_string()))
    };
    let named = |ranks, of| named_of(ranks, ranks, of);
    for ranks in [2, 8] {
        let of = |rank| if rank == 1 { "load_weights" } else { "init_process_group" };
        let (missing, said) = named(ranks, of).unwrap();
        assert_eq!(missing, [1], "{said}");
        assert!(said.starts_with("rank 1 did not join: "), "{said}");
        assert!(said.contains("waited for other ranks in init_process_group for "), "{said}");
    }
    // The first collective waits natively for its communicator's id.
    let (missing, said) =
        named(2, |rank| if rank == 1 { "load_weights" } else { "c10d::TCPStore::get" }).unwrap();
    assert!(missing == [1] && said.contains("PyTorch's store"), "{said}");
    let (all, said) = named(8, |_| "init_process_group").unwrap();
    assert_eq!(all.len(), 8, "{said}");
    assert!(said.contains("all ranks have waited for other ranks in init_process_group"), "{said}");
    // One of nine never launched anything.
    let (unseen, said) = named_of(8, 9, |_| "init_process_group").unwrap();
    assert!(unseen == [8] && said.contains("1 rank of the job was never seen: rank 8"), "{said}");
    // They may wait for requests.
    assert_eq!(named(8, |_| "serve"), None);
    assert_eq!(named(1, |_| "init_process_group"), None);
}

#[test]
fn a_hang_is_an_exit_code_and_a_state() {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, |rank, digest| {
        if rank != 6 {
            wait(digest, 0, 1);
        }
    });
    cluster.run(STALL + BUDGET);
    let status = Status::of(&Jobs::default(), cluster.job(), cluster.now());
    assert_eq!(status.exit_code(), ExitCode::Hang);
    assert_eq!(status.ranks[6].state, RankState::Hung);
    assert_eq!(status.ranks[5].state, RankState::Waiting);
    let figures = |rank: &RankStatus| (rank.gemm_tflops, rank.bus_gb_s, rank.step_ms_mean, rank.step_ms_p99);
    assert!(status.ranks.iter().all(|rank| figures(rank) == (None, None, None, None)), "none is of now");
    assert_eq!((status.steps.mean_ms, status.mfu, status.bound), (None, None, None));
    assert_eq!(
        status.figures_age_s,
        Some(BUDGET as f64 - 1.0),
        "the first digest that stands has new counts"
    );
}

/// All ranks have done a step, so loading and compiling is over.
#[test]
fn a_hang_in_the_first_steps_is_named() {
    let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(0, |rank, digest| {
        digest.step = Some(xpu_wire::id::Step(1));
        if rank != 6 {
            wait(digest, 0, 1);
        }
    });
    let (found, seconds) = cluster.until_found(30);
    assert_eq!((found[0].class, &found[0].ranks), (Class::NotEntered, &only(6)));
    assert!((11..=BUDGET).contains(&seconds), "{seconds} s");
}

/// A single long stall may be a debugger. It delays the report of the next hang by at most a minute, and does
/// not delay that of a stopped process.
#[test]
fn one_long_stall_excuses_the_next_for_a_minute_at_most() {
    let second = |digest: &RankDigest| (digest.heard.0 - 1_800_000_000_000_000_000) / 1_000_000_000;
    let is_stuck = move |stopped: bool| {
        move |rank: u32, digest: &mut RankDigest| {
            // The job hung for five minutes, and then advanced by one collective.
            let later = second(digest) >= 320;
            if rank != 6 || later {
                wait(digest, 0, if rank == 6 { 1 } else { 1 + u64::from(later) });
            }
            if stopped && later && rank == 6 {
                silent(digest, xpu_wire::unit::Moment(1_800_000_000_000_000_000 + 320 * 1_000_000_000));
            }
        }
    };
    for (stopped, least, most) in [(false, 55, 66), (true, 9, 15)] {
        let mut cluster = Cluster::new(5, 8, Layout::Data, &[]).hang_from(STALL, is_stuck(stopped));
        assert_eq!(cluster.run(320).findings(), [], "it goes on");
        let seconds = (1..200).find(|_| !cluster.run(1).findings().is_empty()).unwrap();
        assert!((least..=most).contains(&seconds), "stopped {stopped}: {seconds} s");
    }
}

/// Each of two hosts receives only its own ranks. The cause is not visible on either host, but all ranks of
/// each host wait, so both report the hang.
#[test]
fn a_host_that_sees_a_part_of_a_job_reports_that_its_ranks_hang() {
    let change = |rank, digest: &mut RankDigest| {
        if rank != 12 {
            wait(digest, 0, 1);
        }
    };
    let mut cluster = Cluster::new(5, 16, Layout::Data, &[]).hang_from(STALL, change);
    cluster.hosts = 1;
    cluster.run(STALL + 5);
    assert!(!is_stuck(cluster.job(), &cluster.findings()), "not after some seconds");
    cluster.run(BUDGET - 5);
    let found = cluster.findings();
    let [elsewhere] = &found[..] else { panic!("{found:#?}") };
    assert_eq!((elsewhere.class, &elsewhere.ranks[..]), (Class::Elsewhere, &[][..]));
    assert!(
        elsewhere.evidence.to_string().starts_with("8 of 16 ranks are seen here"),
        "{}",
        elsewhere.evidence
    );
    // Neither a job that trains hangs here, nor one with a working rank.
    let mut trains = Cluster::new(5, 16, Layout::Data, &[]);
    trains.hosts = 1;
    assert!(!is_stuck(trains.run(60).job(), &[]));
    let works = |rank, digest: &mut RankDigest| {
        if rank == 3 {
            digest.blocked_for.0 += digest.heard.0 % 1_000_000_007;
        } else {
            wait(digest, 0, 1);
        }
    };
    let mut saves = Cluster::new(5, 16, Layout::Data, &[]).hang_from(STALL, works);
    saves.hosts = 1;
    assert!(!is_stuck(saves.run(STALL + 40).job(), &[]), "it may be saving");
}

/// As PyTorch's `work.wait()` with a time limit does.
#[test]
fn ranks_that_ask_in_a_loop_whether_the_gpu_is_done_wait_for_it() {
    let finding = found(Layout::Data, |_, digest| {
        wait(digest, 0, 1);
        hold(digest, Call::Query);
    });
    assert_eq!((finding.class, finding.ranks.len()), (Class::InKernel, 8));
}

/// A single process, or ranks that communicate by gloo, wait in no collective of NCCL.
#[test]
fn a_training_job_that_stops_all_activity_is_idle() {
    for ranks in [1, 8] {
        let mut cluster = Cluster::new(5, ranks, Layout::Data, &[]).hang_from(STALL, |_, _| {});
        let (found, seconds) = cluster.until_found(150);
        assert_eq!((found[0].class, found[0].ranks.len()), (Class::Idle, ranks as usize), "{found:#?}");
        assert_eq!(found[0].confidence, Confidence::Guess);
        assert!((120..125).contains(&seconds), "{seconds} s");
    }
    // A server that has no requests is idle too, but does not hang.
    let mut serves = Cluster::new(5, 1, Layout::Data, &[]).hang_from(STALL, |_, digest| {
        digest.step_source = Some(StepSource::Detected);
    });
    assert_eq!(serves.until_found(150).0, []);
}

#[test]
fn a_rank_that_uses_its_cpu_is_not_idle() {
    let mut cluster = Cluster::new(5, 2, Layout::Data, &[]).hang_from(STALL, |_, _| {});
    for _ in 0..150 {
        let job = cluster.run(1).job();
        let works = job.ranks().last().map(|(rank, view)| (rank, view.pid()));
        let work = HostWork { job: job.name().clone(), ranks: works.into_iter().collect() };
        cluster.fold([Body::Work(work)]);
        assert_eq!(cluster.findings(), []);
    }
}
