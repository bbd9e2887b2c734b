use xpu_simulation::Simulation;
use xpu_wire::{
    frame::{
        Body, DeviceReading, Frame, HostTimes, MainThread, RankTimes, SampledPlace, StackFrame, Throttle,
    },
    id::{DeviceUuid, Pid},
    unit::{Moment, Nanoseconds},
};

use super::*;
use crate::job::Jobs;

fn one(gemms: f64, exposed: f64, waiting: f64, blocked: f64) -> Breakdown {
    Breakdown {
        gemms: Some(gemms),
        at_peak: Some(gemms / 2.0),
        clock: Some(0.8),
        collectives: Some(0.5),
        waiting: Some(waiting * 0.5),
        exposed: Some(exposed),
        blocked: Some(blocked),
        ..Breakdown::default()
    }
}

#[test]
fn the_largest_share_is_the_bound_and_all_add_up() {
    let cases = [
        (one(0.6, 0.2, 0.5, 0.5), BoundBy::Gemms),
        (one(0.3, 0.5, 0.1, 0.5), BoundBy::Communication),
        (one(0.3, 0.5, 0.9, 0.5), BoundBy::Stragglers),
        (one(0.2, 0.1, 0.5, 0.02), BoundBy::Host),
        (one(0.2, 0.1, 0.5, 0.8), BoundBy::Other),
        // GEMMs on several streams, with concurrent waits.
        (one(1.3, 0.5, 0.5, 0.5), BoundBy::Gemms),
    ];
    for (breakdown, by) in cases {
        let bound = Bound::of(&breakdown, false).unwrap();
        assert_eq!(bound.by, by, "{bound}");
        let Bound { gemms_pct, transfers_pct, waiting_pct, other_pct, .. } = bound;
        assert!(
            (gemms_pct + transfers_pct + waiting_pct.unwrap_or(0.0) + other_pct - 100.0).abs() < 1e-9,
            "{bound:?}"
        );
    }
}

/// Half of the peak at four fifths of the clock: at the highest clock, 60 % would be 48. 30 are at the peak.
#[test]
fn time_at_gemms_is_split_by_peak_and_clock() {
    let made_of = |one: Breakdown| Bound::of(&one, false).unwrap().gemms;
    let split = made_of(one(0.6, 0.2, 0.5, 0.5)).unwrap();
    let parts = [split.at_peak_pct, split.clock_pct, split.below_peak_pct];
    for (part, wanted) in parts.iter().zip([30.0, 12.0, 18.0]) {
        assert!((part - wanted).abs() < 1e-9, "{split:?}");
    }
    // A clock above the one for which peaks are stated, and GEMMs that slow each other down.
    for invalid in [Breakdown { clock: Some(1.2), ..one(0.6, 0.2, 0.5, 0.5) }, one(1.3, 0.5, 0.5, 0.5)] {
        let bound = Bound::of(&invalid, false).unwrap();
        let GemmTime { at_peak_pct, clock_pct, below_peak_pct, .. } = bound.gemms.clone().unwrap();
        assert!((at_peak_pct + clock_pct + below_peak_pct - bound.gemms_pct).abs() < 1e-9, "{bound:?}");
        assert!(clock_pct >= 0.0 && below_peak_pct >= 0.0, "{bound:?}");
    }
    let at_highest = made_of(Breakdown { clock: Some(1.0), at_peak: Some(0.1), ..one(0.6, 0.2, 0.5, 0.5) });
    assert_eq!(at_highest.unwrap().clock_pct.to_bits(), 0.0_f64.to_bits(), "no -0 %");
    assert_eq!(made_of(Breakdown { clock: None, ..one(0.6, 0.2, 0.5, 0.5) }), None);
    assert_eq!(made_of(Breakdown { at_peak: None, ..one(0.6, 0.2, 0.5, 0.5) }), None);
}

/// On two H200s, exposed communication had half of a wait of which the findings knew.
#[test]
fn a_wait_that_the_findings_know_is_not_unexplained() {
    let mut bound = Bound::of(&one(0.1, 0.4, 1.0, 0.5), false).unwrap();
    bound.wait_at_least(70.0);
    assert_eq!((bound.by, bound.waiting_pct.map(f64::round)), (BoundBy::Stragglers, Some(70.0)), "{bound}");
    assert!(bound.to_string().ends_with("unexplained 20 % of the time"), "{bound}");
    // At most the time that nothing else explains; less is known already.
    bound.wait_at_least(99.0);
    assert_eq!(bound.waiting_pct.map(f64::round), Some(90.0), "{bound}");
    bound.wait_at_least(5.0);
    assert_eq!(bound.waiting_pct.map(f64::round), Some(90.0), "{bound}");
    let mut unknown = Bound::of(&Breakdown { waiting: None, ..one(0.1, 0.4, 1.0, 0.5) }, false).unwrap();
    unknown.wait_at_least(70.0);
    assert_eq!(unknown.waiting_pct, None);
}

#[test]
fn of_two_ranks_the_one_that_waits_is_the_median() {
    let [culprit, victim] = [one(0.6, 0.1, 0.1, 0.1), one(0.4, 0.4, 0.9, 0.6)];
    let empty = Breakdown { waiting: None, ..culprit };
    for (ranks, left) in [
        (vec![culprit, victim], vec![victim]),
        (vec![victim, culprit], vec![victim]),
        (vec![culprit, victim, victim], vec![culprit, victim, victim]),
        (vec![culprit], vec![culprit]),
        // Nothing is known of who waits.
        (vec![empty, empty], vec![empty, empty]),
    ] {
        let ranks = if ranks.len() == 1 {
            without_least_waiting(vec![culprit, culprit])
        } else {
            without_least_waiting(ranks)
        };
        assert_eq!(ranks, left);
    }
}

#[test]
fn unknown_parts_are_not_reported() {
    let unknown = Breakdown { exposed: None, ..one(0.5, 0.0, 0.0, 0.0) };
    assert_eq!(Bound::of(&unknown, false), None);
    assert_eq!(Bound::of(&unknown, true).unwrap().by, BoundBy::Gemms);
    assert_eq!(Bound::of(&Breakdown { gemms: None, ..unknown }, true), None);
}

/// The parts have their own names, because exposed communication includes waiting everywhere.
#[test]
fn exposed_communication_is_split_into_transfers_and_waiting() {
    let split = Bound::of(&one(0.3, 0.5, 0.2, 0.5), false).unwrap().to_string();
    assert!(split.contains(", exposed transfers 40 %, waiting for other ranks 10 %, "), "{split}");
    let whole = Bound::of(&Breakdown { waiting: None, ..one(0.3, 0.5, 0.2, 0.5) }, false).unwrap();
    assert_eq!(whole.waiting_pct, None);
    let whole = whole.to_string();
    assert!(
        whole.contains(", exposed communication 50 % (transfers and waiting for other ranks), "),
        "{whole}"
    );
}

#[test]
fn a_straggler_binds_the_job_in_which_most_of_the_time_is_waiting() {
    let bound = |slow: Vec<(Rank, f64)>| {
        let simulation = Simulation { slow, ..Simulation::new(1, 1, 8) };
        let mut jobs = Jobs::default();
        (100..130).flat_map(|second| simulation.digests(second)).for_each(|frame| jobs.fold(&frame));
        jobs.foremost().unwrap().bound((0..8).map(Rank), 0.0).unwrap()
    };
    assert_eq!(bound(Vec::new()).by, BoundBy::Gemms);
    let late = bound(vec![(Rank(3), 3.0)]);
    assert_eq!(late.by, BoundBy::Stragglers, "{late}");
    assert!(late.to_string().starts_with("bound by waiting for other ranks: GEMMs "), "{late}");
}

/// A job in which 70 % of the time is neither GEMM nor communication.
fn host_bound(of: impl FnOnce(&mut Breakdown)) -> Bound {
    let mut breakdown = one(0.2, 0.1, 0.0, 0.02);
    of(&mut breakdown);
    Bound::of(&breakdown, false).unwrap()
}

fn parts(bound: &Bound) -> [Option<f64>; 5] {
    let OtherTime { loading_pct, collecting_pct, copying_pct, synchronizing_pct, unexplained_pct } =
        bound.other;
    let all = [loading_pct, collecting_pct, copying_pct, synchronizing_pct, Some(unexplained_pct)];
    let sum: f64 = all.iter().flatten().sum();
    assert!((sum - bound.other_pct).abs() < 1e-9, "{bound:?}");
    all.map(|part| part.map(f64::round))
}

#[test]
fn measured_reasons_of_gpu_waits_are_reported() {
    let bound = host_bound(|_| ());
    assert_eq!((parts(&bound), bound.by), ([None, None, None, None, Some(70.0)], BoundBy::Host));

    let bound = host_bound(|one| (one.loading, one.collecting) = (Some(0.5), Some(0.1)));
    assert_eq!(
        (parts(&bound), bound.by),
        ([Some(50.0), Some(10.0), None, None, Some(10.0)], BoundBy::DataLoading)
    );
    let said = bound.to_string();
    assert!(
        said.starts_with("bound by data loading: ")
            && said.ends_with("data loading 50 %, garbage collection 10 %, unexplained 10 % of the time"),
        "{said}"
    );

    // According to the driver, kernels run for 40 % of the time: the GPU is idle for 60 % at most.
    let bound = host_bound(|one| (one.loading, one.busy) = (Some(0.9), Some(0.4)));
    assert_eq!(parts(&bound), [Some(60.0), None, None, None, Some(10.0)]);

    // More time than the GPU is idle.
    let bound = host_bound(|one| (one.collecting, one.loading) = (Some(0.6), Some(0.6)));
    assert_eq!(parts(&bound), [Some(60.0), Some(10.0), None, None, Some(0.0)]);
}

/// Waiting for data costs nothing while the GPU has work.
#[test]
fn host_work_hidden_behind_gpu_work_has_no_share() {
    let ahead = |busy| {
        let breakdown = Breakdown { loading: Some(0.3), busy, ..one(0.5, 0.1, 0.0, 0.6) };
        Bound::of(&breakdown, false).unwrap()
    };
    assert_eq!(parts(&ahead(Some(1.0)))[0], Some(0.0));
    assert_eq!(parts(&ahead(None))[0], Some(0.0), "nothing says that the GPU was idle");
    assert_eq!(parts(&ahead(Some(0.8)))[0], Some(20.0));
}

/// The step would be shorter by the host's wait, until the GPU is always busy.
#[test]
fn calls_that_synchronize_cost_what_the_gpu_is_idle_at_most() {
    let waits = |synchronizing, copying, busy| {
        let breakdown = Breakdown { synchronizing, copying, busy: Some(busy), ..one(0.2, 0.1, 0.0, 0.5) };
        Bound::of(&breakdown, false).unwrap()
    };
    let bound = waits(Some(0.5), Some(0.0), 0.5);
    assert_eq!((parts(&bound)[3], bound.by), (Some(50.0), BoundBy::Synchronizing), "{bound}");
    let bound = waits(Some(0.1), Some(0.4), 0.4);
    assert_eq!((parts(&bound)[2..4].to_vec(), bound.by), (vec![Some(40.0), Some(10.0)], BoundBy::Copies));
    assert_eq!(parts(&waits(Some(0.5), None, 0.95))[3], Some(5.0));
}

#[test]
fn the_reason_for_low_clocks_of_most_gpus_is_named() {
    let reading = |throttle| DeviceReading {
        throttle: Some(throttle),
        ..DeviceReading::unknown(DeviceUuid([0; 16]), Moment(1))
    };
    let named = |clock, held: &[Throttle]| {
        let breakdown = Breakdown { clock: Some(clock), ..one(0.6, 0.2, 0.5, 0.5) };
        let mut gemms = Bound::of(&breakdown, false).unwrap().gemms.unwrap();
        let readings: Vec<_> = held.iter().copied().map(reading).collect();
        gemms.take_reasons(readings.iter());
        (gemms.held_by.clone(), gemms.to_string())
    };
    let (power, idle) = (Throttle::POWER_CAP, Throttle::IDLE);
    let (names, said) = named(0.75, &[power, power, idle]);
    assert_eq!(
        (names, &said[..]),
        (vec!["power cap"], "30 % at the GPU's peak, 15 % lost to lower clocks (power cap), 15 % below peak")
    );
    assert!(named(0.75, &[power, idle, idle]).0.is_empty());
    assert!(named(0.75, &[]).0.is_empty());
    assert!(named(1.0, &[power]).0.is_empty(), "nothing is lost");
}

/// A report of five seconds ago counts, one of minutes ago does not.
#[test]
fn host_work_covers_the_last_half_minute_and_names_the_function() {
    let simulation = Simulation::new(1, 1, 4);
    let mut jobs = Jobs::default();
    (100..130).flat_map(|second| simulation.digests(second)).for_each(|frame| jobs.fold(&frame));
    let loading_of = |jobs: &Jobs| jobs.foremost().unwrap().breakdown(Rank(1)).unwrap().loading;
    assert_eq!(loading_of(&jobs), None);
    let last = simulation.digests(129).remove(0);
    let Body::Digest(digest) = &last.body else { unreachable!() };
    let frame = StackFrame { function: "collate_fn".to_owned(), file: "/a/data.py".to_owned(), line: 40 };
    let holder = StackFrame { function: "flush".to_owned(), file: "/a/log.py".to_owned(), line: 7 };
    let times = |pid| RankTimes {
        rank: Rank(1),
        pid,
        interval: Nanoseconds(10_000_000_000),
        synchronizing: Nanoseconds(1_000_000_000),
        copying: Nanoseconds(0),
        launching: Nanoseconds(0),
        loading: None,
        collecting: None,
        main: Some(MainThread {
            samples: 40,
            loading: 30,
            places: vec![SampledPlace { samples: 25, frame: frame.clone() }],
            holders: vec![SampledPlace { samples: 22, frame: holder.clone() }],
        }),
    };
    let say = |jobs: &mut Jobs, pid| {
        let body = Body::Times(HostTimes { job: digest.job.clone(), ranks: vec![times(pid)] });
        jobs.fold(&Frame { body, ..last.clone() });
    };
    say(&mut jobs, Pid(u32::MAX));
    assert_eq!(loading_of(&jobs), None, "another process's");
    say(&mut jobs, digest.ranks[1].pid);
    assert_eq!(loading_of(&jobs), Some(0.75), "by the samples");
    let bound = |jobs: &Jobs| jobs.foremost().unwrap().bound((0..4).map(Rank), 0.0).unwrap();
    let seen = |jobs: &Jobs| bound(jobs).main_thread.map(|seen| seen.to_string());
    assert_eq!(
        seen(&jobs).as_deref(),
        Some(
            "rank 1 is in collate_fn (data.py:40) in 62 % of 40 samples, and another thread holds the GIL in 55 %, in flush (log.py:7)"
        )
    );
    assert!(!bound(&jobs).to_string().contains("collate_fn"), "its GPU limits the job");
    let of_hosts = Bound { by: BoundBy::DataLoading, ..bound(&jobs) };
    assert!(of_hosts.to_string().contains("; rank 1 is in collate_fn"), "{of_hosts}");
    (130..170).flat_map(|second| simulation.digests(second)).for_each(|frame| jobs.fold(&frame));
    assert_eq!((loading_of(&jobs), seen(&jobs)), (None, None));
}
