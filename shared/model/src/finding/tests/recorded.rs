//! Real faults of rank 1 in a job of two DDP ranks (`tests/gpu/slow.py`), as received by a viewer that
//! connected when the fault began and asked 20 s later. By default, the ranks share one H100.

use std::{fs, time::Duration};

use xpu_recording::{Media, Recording};
use xpu_wire::{
    codec,
    frame::{Body, Frame, GpuProcess, HostNeighbours, RankNeighbours},
    id::{Pid, Rank},
    unit::Moment,
};

use crate::{
    finding::{Class, Confidence, Finding, Kind, examine},
    job::Jobs,
};

/// The findings at the end of a recording.
fn found(bytes: &[u8]) -> Vec<Finding> {
    found_after(bytes, Duration::MAX)
}

/// The findings this long after it began.
fn found_after(bytes: &[u8], until: Duration) -> Vec<Finding> {
    let (jobs, now) = read(bytes, until);
    examine(jobs.foremost().unwrap(), now)
}

fn read(bytes: &[u8], until: Duration) -> (Jobs, Moment) {
    let mut recording = Recording::open(Media::memory(bytes.to_vec())).unwrap();
    let (mut jobs, mut now, mut began) = (Jobs::default(), Moment::default(), None);
    for entry in recording.entries().to_vec() {
        let block = recording.block(&entry).unwrap().unwrap();
        for record in block.records() {
            if record.at.since(*began.get_or_insert(record.at)) >= until {
                continue;
            }
            now = now.max(record.at);
            jobs.fold(&codec::decode(record.frame).unwrap());
        }
    }
    (jobs, now)
}

/// The same, with another process on the GPU of rank 1, which began `ago` before the last report.
fn found_with_neighbour(bytes: &[u8], busy: Option<u8>, ago: Duration) -> Vec<Finding> {
    let (mut jobs, now) = read(bytes, Duration::MAX);
    let job = jobs.foremost().unwrap();
    let pid = job.rank(Rank(1)).unwrap().pid();
    let process = GpuProcess {
        pid: Pid(4242),
        name: "python3".to_owned(),
        busy,
        memory: None,
        since: Moment(now.0 - ago.as_nanos() as u64),
    };
    let rank = RankNeighbours { rank: Rank(1), pid, processes: vec![process] };
    let host = job.rank(Rank(1)).unwrap().host().clone();
    let body = Body::Neighbours(HostNeighbours { job: job.name().clone(), ranks: vec![rank] });
    jobs.fold(&Frame { number: u64::MAX, now, lost: 0, host, body });
    examine(jobs.foremost().unwrap(), now)
}

/// The one finding, which names rank 1, and its cost per step.
fn named(bytes: &[u8], class: Class) -> f64 {
    let found = found(bytes);
    let [one] = &found[..] else { panic!("{found:#?}") };
    assert_eq!(
        (one.kind, one.class, &one.ranks[..]),
        (Kind::SlowRank, class, &[Rank(1)][..]),
        "{}",
        one.evidence
    );
    one.cost.and_then(|cost| cost.ms_per_step).unwrap_or_else(|| panic!("{found:#?}"))
}

#[test]
fn a_healthy_job_has_no_finding() {
    assert_eq!(found(include_bytes!("recorded/none.xpurec")), []);
}

/// A viewer may ask at any second, so every second is checked, not only the end.
#[test]
fn a_healthy_job_has_no_finding_at_any_second() {
    for (name, bytes) in [
        ("none", &include_bytes!("recorded/none.xpurec")[..]),
        ("h200_none", include_bytes!("recorded/h200_none.xpurec")),
        ("h200_none_again", include_bytes!("recorded/h200_none_again.xpurec")),
        ("h100_none", include_bytes!("recorded/h100_none.xpurec")),
        ("h100_none_again", include_bytes!("recorded/h100_none_again.xpurec")),
    ] {
        for seconds in 1..30 {
            assert_eq!(found_after(bytes, Duration::from_secs(seconds)), [], "{name} after {seconds} s");
        }
    }
}

/// Steps took 75 ms before the fault and 1,900 ms after it, by the program's own clock. Rank 0 had launched
/// ten steps when the fault began, and hardly any of their collectives were timed.
#[test]
fn a_rank_whose_gil_is_held_is_named() {
    let cost = named(include_bytes!("recorded/gil.xpurec"), Class::Host);
    assert!((1_460.0..2_190.0).contains(&cost), "{cost}");
}

/// 75 ms a step, and 105.7 with a checkpoint of 1.6 s every 50 steps.
#[test]
fn a_rank_that_saves_alone_is_named() {
    let cost = named(include_bytes!("recorded/checkpoint.xpurec"), Class::Pauses);
    assert!((24.6..36.8).contains(&cost), "{cost}");
}

/// Three of these pauses take 30 % of the time.
#[test]
fn three_long_pauses_of_a_rank_suffice() {
    for seconds in 16..20 {
        let found = found_after(include_bytes!("recorded/checkpoint.xpurec"), Duration::from_secs(seconds));
        let [one] = &found[..] else { panic!("after {seconds} s: {found:#?}") };
        assert_eq!((one.class, &one.ranks[..]), (Class::Pauses, &[Rank(1)][..]), "{}", one.evidence);
    }
}

/// 75.4 ms a step, and 123.6 ms with twenty `.item()`.
#[test]
fn a_rank_that_waits_for_its_own_gpu_is_named() {
    let cost = named(include_bytes!("recorded/item.xpurec"), Class::Host);
    assert!((38.6..57.8).contains(&cost), "{cost}");
}

/// 75.0 ms a step, and 2,180 by the GPU's clock: only a third of the timed collectives waited for rank 1.
#[test]
fn a_held_gil_costs_what_steps_are_longer_by() {
    let cost = named(include_bytes!("recorded/gil_again.xpurec"), Class::Host);
    assert!((1_680.0..2_520.0).contains(&cost), "{cost}");
}

/// 75.3 ms a step, and 94.6 with four copies of 64 MiB.
#[test]
fn a_rank_that_copies_is_named() {
    let cost = named(include_bytes!("recorded/copies.xpurec"), Class::Host);
    assert!((15.4..23.2).contains(&cost), "{cost}");
}

/// 75.1 ms a step, and 90.2 with memory that is pinned for each batch. Every tenth step takes longer.
#[test]
fn a_rank_that_pins_memory_costs_what_steps_are_longer_by() {
    let cost = named(include_bytes!("recorded/pinned.xpurec"), Class::Host);
    assert!((12.1..18.1).contains(&cost), "{cost}");
}

/// 75.0 ms a step, and 186.7 when it reads the norm of each gradient. In the first steps the others waited for it too.
#[test]
fn the_begin_of_a_job_is_not_that_of_a_fault() {
    let bytes = include_bytes!("recorded/norms.xpurec");
    let cost = named(bytes, Class::Host);
    assert!((89.3..133.9).contains(&cost), "{cost}");
    let since = found(bytes)[0].since_s;
    assert!((19.0..22.0).contains(&since), "{since}");
}

/// Six busy processes on its one core: 75 ms a step, and 586 by the GPU's clock.
#[test]
fn a_rank_that_lacks_the_cpu_is_named() {
    let cost = named(include_bytes!("recorded/core.xpurec"), Class::Host);
    assert!((411.0..616.0).contains(&cost), "{cost}");
    let found = found(include_bytes!("recorded/core.xpurec"));
    assert!(found[0].evidence.to_string().contains("had no CPU core"), "{}", found[0].evidence);
}

/// 76 ms a step, and 135 by the GPU's clock.
#[test]
fn a_rank_that_is_stopped_now_and_then_is_named() {
    let cost = named(include_bytes!("recorded/stopped.xpurec"), Class::Host);
    assert!((47.0..71.0).contains(&cost), "{cost}");
    let found = found(include_bytes!("recorded/stopped.xpurec"));
    assert!(found[0].evidence.to_string().contains("was stopped (SIGSTOP)"), "{}", found[0].evidence);
}

/// 76.4 ms a step, and 126.7 with twenty `.item()`; rank 0 enters four collectives of ten last.
#[test]
fn a_rank_that_waits_for_its_own_gpu_is_named_although_others_are_last_too() {
    let cost = named(include_bytes!("recorded/item_again.xpurec"), Class::Host);
    assert!((40.2..60.4).contains(&cost), "{cost}");
}

/// Two H200s on one host each. Steps take 6 ms because the hosts need that long: the GPUs wait for work.
mod bound_by_its_hosts {
    use super::*;

    #[test]
    fn hosts_that_are_not_quite_alike_are_no_fault() {
        assert_eq!(found(include_bytes!("recorded/h200_none.xpurec")), []);
        assert_eq!(found(include_bytes!("recorded/h200_none_again.xpurec")), []);
    }

    /// Two H100s: of a few timed small GEMMs, those of rank 0 took a fifth longer.
    #[test]
    fn rates_of_a_few_small_gemms_are_no_fault() {
        assert_eq!(found(include_bytes!("recorded/h100_none.xpurec")), []);
        assert_eq!(found(include_bytes!("recorded/h100_none_again.xpurec")), []);
    }

    #[test]
    fn nothing_is_found_before_a_fault() {
        let recordings: [&[u8]; 9] = [
            include_bytes!("recorded/h200_none.xpurec"),
            include_bytes!("recorded/h200_none_again.xpurec"),
            include_bytes!("recorded/h200_loader.xpurec"),
            include_bytes!("recorded/h200_gil.xpurec"),
            include_bytes!("recorded/h200_checkpoint.xpurec"),
            include_bytes!("recorded/h200_copies.xpurec"),
            include_bytes!("recorded/h200_item.xpurec"),
            include_bytes!("recorded/h200_gc.xpurec"),
            include_bytes!("recorded/h200_compute.xpurec"),
        ];
        for bytes in recordings {
            for seconds in [1, 3] {
                assert_eq!(found_after(bytes, Duration::from_secs(seconds)), []);
            }
        }
    }

    /// 6.5 ms a step, then 37.0.
    #[test]
    fn a_rank_with_late_data_is_named() {
        let cost = named(include_bytes!("recorded/h200_loader.xpurec"), Class::Host);
        assert!((24.4..36.6).contains(&cost), "{cost}");
    }

    /// 6.8 ms a step, then 1,760 by the GPU's clock. Hardly any GEMM is timed.
    #[test]
    fn a_rank_whose_gil_is_held_is_named() {
        let cost = named(include_bytes!("recorded/h200_gil.xpurec"), Class::Host);
        assert!((1_400.0..2_120.0).contains(&cost), "{cost}");
    }

    /// 6.6 ms a step, of which rank 0 waits 1.5 ms for rank 1; then 2,055 by the program's clock.
    #[test]
    fn a_held_gil_costs_what_steps_are_longer_by_though_the_rank_was_awaited_before() {
        let cost = named(include_bytes!("recorded/h200_gil_awaited.xpurec"), Class::Host);
        assert!((1_640.0..2_460.0).contains(&cost), "{cost}");
    }

    /// 10.6 ms a step, then 2.40 s for 50 steps and a checkpoint, by the GPU's clock.
    #[test]
    fn of_pauses_the_cost_is_of_whole_periods() {
        let cost = named(include_bytes!("recorded/h200_checkpoint_11ms.xpurec"), Class::Pauses);
        assert!((34.0..41.0).contains(&cost), "{cost}");
    }

    /// 9.1 ms a step, then 1,870 by the GPU's clock. The few timed GEMMs seem slow because their thread is
    /// blocked during that time.
    #[test]
    fn a_rank_with_few_timed_gemms_that_seem_slow_has_its_gil_held() {
        let cost = named(include_bytes!("recorded/h100_gil.xpurec"), Class::Host);
        assert!((1_500.0..2_240.0).contains(&cost), "{cost}");
    }

    /// Rank 0 has completed four steps, or none because it waits until ten are done.
    #[test]
    fn a_rank_whose_gil_is_held_is_named_in_ten_seconds() {
        let recordings: [&[u8]; 4] = [
            include_bytes!("recorded/gil.xpurec"),
            include_bytes!("recorded/gil_again.xpurec"),
            include_bytes!("recorded/h100_gil.xpurec"),
            include_bytes!("recorded/h200_gil.xpurec"),
        ];
        for bytes in recordings {
            let found = found_after(bytes, Duration::from_secs(10));
            let [one] = &found[..] else { panic!("{found:#?}") };
            assert_eq!((one.class, &one.ranks[..]), (Class::Host, &[Rank(1)][..]), "{}", one.evidence);
            assert!(one.cost.is_some_and(|cost| cost.pct > 90.0), "{found:#?}");
        }
    }

    /// 7.2 ms a step, then 35.1 with a checkpoint of 1.5 s every 50 steps. Before that, steps differed by a
    /// third.
    #[test]
    fn a_rank_that_saves_alone_is_named() {
        let cost = named(include_bytes!("recorded/h200_checkpoint.xpurec"), Class::Pauses);
        assert!((22.3..33.5).contains(&cost), "{cost}");
    }

    /// 5.5 ms a step, then 17.8.
    #[test]
    fn a_rank_that_copies_is_named() {
        let cost = named(include_bytes!("recorded/h200_copies.xpurec"), Class::Host);
        assert!((9.8..14.8).contains(&cost), "{cost}");
    }

    /// 6.4 ms a step, then 8.1.
    #[test]
    fn a_rank_that_waits_for_its_own_gpu_is_named() {
        let cost = named(include_bytes!("recorded/h200_item.xpurec"), Class::Host);
        assert!((1.3..2.1).contains(&cost), "{cost}");
    }

    /// 6.9 ms a step, then 71.0.
    #[test]
    fn a_rank_that_collects_garbage_is_named() {
        let cost = named(include_bytes!("recorded/h200_gc.xpurec"), Class::Host);
        assert!((51.3..76.9).contains(&cost), "{cost}");
    }

    /// 8.9 ms a step, then 9.8.
    #[test]
    fn the_cost_of_more_gemms_is_reported() {
        let bytes = include_bytes!("recorded/h100_compute.xpurec");
        let cost = named(bytes, Class::Compute);
        assert!((0.7..1.1).contains(&cost), "{cost}");
        assert_eq!(found_after(bytes, Duration::from_secs(3)), []);
    }

    /// Steps took as long as before. The other rank's threads wait for 0.8 ms of each step, and no more is
    /// lost.
    #[test]
    fn more_gemms_on_a_gpu_that_waits_for_work_cost_little() {
        let bytes = include_bytes!("recorded/h200_compute.xpurec");
        let cost = named(bytes, Class::Compute);
        assert!(cost < 1.0, "{cost}");
        let found = found(bytes);
        assert!(found[0].evidence.to_string().contains("1.14 times their FLOPs"), "{}", found[0].evidence);
    }
}

/// Two H100s. Steps take 28 ms because the GPUs need that long.
mod bound_by_its_gpus {
    use super::*;

    #[test]
    fn a_healthy_job_has_no_finding() {
        assert_eq!(found(include_bytes!("recorded/h100_gpu_bound_none.xpurec")), []);
    }

    /// 28.1 ms a step, then 63.5. Its clock is also a tenth lower, which is not the cause.
    #[test]
    fn a_rank_that_shares_its_gpu_is_named() {
        let cost = named(include_bytes!("recorded/h100_gpu_bound_neighbour.xpurec"), Class::Compute);
        assert!((28.4..42.6).contains(&cost), "{cost}");
    }

    /// 28.0 ms a step, then 31.4. The other's GPU has just become hot and slow, and no rank waits for it.
    #[test]
    fn a_rank_that_waits_for_its_own_gpu_is_named() {
        let cost = named(include_bytes!("recorded/h100_gpu_bound_item.xpurec"), Class::Host);
        assert!((2.7..4.1).contains(&cost), "{cost}");
    }
}

/// Two H200s: 8 ms a step, and by the GPU's clock 41.3 and 37.1 with a checkpoint of 1.5 s every 50 steps.
#[test]
fn a_rank_that_saves_every_half_second_is_named() {
    let cost = named(include_bytes!("recorded/h200_checkpoint_9ms.xpurec"), Class::Pauses);
    assert!((28.2..38.1).contains(&cost), "{cost}");
    let cost = named(include_bytes!("recorded/h200_checkpoint_9ms_again.xpurec"), Class::Pauses);
    assert!((25.0..34.5).contains(&cost), "{cost}");
}

/// Two H200s: 10.1 ms a step, and 38.9 with the checkpoints. Its arrival skew outside of the checkpoints is
/// found shortly before the end.
#[test]
fn pauses_cost_what_they_cost_although_their_rank_is_late_too() {
    let bytes = include_bytes!("recorded/h200_checkpoint_late.xpurec");
    let cost = named(bytes, Class::Pauses);
    assert!((23.0..34.6).contains(&cost), "{cost}");
}

/// Four H100s: 8.9 ms a step, and 24.8 with four copies of 64 MiB.
#[test]
fn a_rank_that_copies_is_named_among_four() {
    let bytes = include_bytes!("recorded/h100_four_copies.xpurec");
    let cost = named(bytes, Class::Host);
    assert!((12.7..19.1).contains(&cost), "{cost}");
    let since_s = found(bytes)[0].since_s;
    assert!((14.0..24.0).contains(&since_s), "{since_s}");
}

/// Rank 1 was late in the first collectives of the job, in which it loaded kernels. This does not make its
/// fault older. By its own clock, steps became 17.2 and 159.5 ms longer 20 s before.
#[test]
fn a_late_start_of_the_job_does_not_dilute_the_cost_of_a_fault() {
    for (bytes, longer) in [
        (&include_bytes!("recorded/h200_copies_onset.xpurec")[..], 17.2),
        (include_bytes!("recorded/h200_gc_onset.xpurec"), 159.5),
    ] {
        let cost = named(bytes, Class::Host);
        assert!((0.8..1.2).contains(&(cost / longer)), "{cost} is not {longer}");
        let since_s = found(bytes)[0].since_s;
        assert!((15.0..25.0).contains(&since_s), "{since_s}");
    }
}

/// GPUs limit the job, and a process multiplies on the GPU of rank 1: 26.4 ms a step before, 56.1 with it. The
/// sampled GEMMs fit into time slices, so their rate shows nothing.
#[test]
fn a_process_on_the_gpu_accounts_for_a_delay_that_nothing_else_explains() {
    let bytes = include_bytes!("recorded/h200_neighbour.xpurec");
    named(bytes, Class::Step);
    for (busy, class) in [(Some(48), Class::Compute), (None, Class::Step), (Some(6), Class::Step)] {
        let found = found_with_neighbour(bytes, busy, Duration::ZERO);
        let [one] = &found[..] else { panic!("{found:#?}") };
        let sentence = one.evidence.to_string();
        assert_eq!((one.class, &one.ranks[..]), (class, &[Rank(1)][..]), "{sentence}");
        assert!(sentence.contains("process 4242 (python3)"), "{sentence}");
        assert_eq!(sentence.contains("unknown"), class == Class::Step, "{sentence}");
    }
    // Of a job without a fault, nothing is reported because of it.
    let healthy = include_bytes!("recorded/h200_none.xpurec");
    assert_eq!(found_with_neighbour(healthy, Some(48), Duration::ZERO), []);
}

/// Two H200s, steps of 9 ms that hosts limit. The other process delays rank 1 by 0.4 ms.
#[test]
fn a_process_on_the_gpu_since_a_rank_enters_last_is_reported_with_it() {
    let bytes = include_bytes!("recorded/h200_host_bound_neighbour_late.xpurec");
    named(bytes, Class::Host);
    let found = found(bytes);
    assert!(
        found[0].evidence.to_string().contains("(python3) uses the GPU of rank 1 too"),
        "{}",
        found[0].evidence
    );
    // Without a fault on the GPU, a process that came long before is not mentioned.
    let loader = include_bytes!("recorded/h200_loader.xpurec");
    let with = |seconds| found_with_neighbour(loader, Some(48), Duration::from_secs(seconds));
    let mentions = |found: &[Finding]| found.iter().any(|one| one.evidence.neighbours().is_some());
    assert!(mentions(&with(20)) && !mentions(&with(200)), "{:#?}", with(200));
}

/// Two H200s, steps that hosts limit and that vary by a fifth: 8.3 ms, and 9.9 ms by the program's clock with
/// the other process. No rank stands out, and no change at an unknown time would be significant.
#[test]
fn steps_that_are_longer_since_another_process_began_are_its_cost() {
    let bytes = include_bytes!("recorded/h200_host_bound_neighbour.xpurec");
    let cost = named(bytes, Class::Compute);
    assert!((1.3..=1.9).contains(&cost), "{cost}");
    let found = found(bytes);
    assert_eq!(
        found[0].headline(None),
        "rank 1: shares its GPU with process 3672 (python3), steps 19 % longer"
    );
}

/// Steps that hosts limit vary by themselves, so the cause is a guess.
#[test]
fn another_process_costs_nothing_if_steps_are_as_long_as_before_it() {
    let mut found = Vec::new();
    for bytes in [
        &include_bytes!("recorded/none.xpurec")[..],
        include_bytes!("recorded/h100_none.xpurec"),
        include_bytes!("recorded/h100_none_again.xpurec"),
        include_bytes!("recorded/h100_gpu_bound_none.xpurec"),
        include_bytes!("recorded/h200_none.xpurec"),
        include_bytes!("recorded/h200_none_again.xpurec"),
    ] {
        for seconds in [4, 6, 8, 10, 12, 14, 16] {
            found.extend(found_with_neighbour(bytes, Some(48), Duration::from_secs(seconds)));
        }
    }
    // Of 42 moments at which it might have begun.
    assert!(found.len() <= 1 && found.iter().all(|one| one.confidence == Confidence::Guess), "{found:#?}");
}

/// A viewer may ask at any second. Right after a fault began, much of what is known is from before it. (Ranks that
/// share a GPU delay each other, so their recordings do not count.)
#[test]
fn no_other_rank_is_named_at_any_second() {
    let mut wrong = Vec::new();
    for file in fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/finding/tests/recorded")).unwrap() {
        let path = file.unwrap().path();
        if !["h200", "h100_four"].iter().any(|own_gpus| path.to_string_lossy().contains(own_gpus)) {
            continue;
        }
        let bytes = fs::read(&path).unwrap();
        for seconds in 1..=21 {
            let found = found_after(&bytes, Duration::from_secs(seconds));
            let others = found.iter().filter(|one| one.ranks.iter().any(|rank| *rank != Rank(1)));
            wrong.extend(
                others.map(|one| format!("{path:?} at {seconds} s: {:?}: {}", one.ranks, one.evidence)),
            );
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
