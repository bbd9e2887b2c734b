//! Steps that take longer than in an earlier run, whether or not they were ever shorter in this run.

use xpu_wire::{id::Rank, unit::Nanoseconds};

use super::{
    Class, Confidence, Cost, Evidence, Finding, Kind, Severity, cohort::FEW, device::EXPLAINS,
    evidence::pace::PastRun, pace::asked,
};
use crate::{
    baseline::{Baseline, Normal, work},
    job::{Job, RankView, median},
    phrase,
};

/// The share by which steps must take longer, which is the difference between equal GPUs; and the multiple of
/// that run's variation between half minutes, which is exceeded by chance once in 700 times.
const LONGER: f64 = 0.03;
const SPREADS: f64 = 3.0;

/// Largest difference of FLOPs per step between comparable runs: the smallest reported difference of steps.
/// Beyond it, the work differs.
const SAME_WORK: f64 = LONGER;

/// Number of steps that compile and warm up, and seconds of later steps that suffice.
const FIRST: f64 = 10.0;
const ENOUGH: f64 = 20.0;

/// Seconds of steps that a rank may have done before its first digest with steps.
const UNHEARD: f64 = 3.0;

/// The finding of `job`, compared with `run`; `others` are the existing findings, each with a part of the
/// cost.
pub(super) fn slower(job: &Job, run: &Baseline, others: &[Finding]) -> Option<Finding> {
    let then = run.median(|normal| normal.step_ms_mean)?;
    let asked = asked(job);
    let over =
        |of: fn(&RankView) -> Option<f64>| median(asked.iter().filter_map(|(_, view)| of(view)).collect());
    let now = over(|view| view.step_time().map(Nanoseconds::milliseconds))?;
    let more = over(work).zip(run.median(|normal| normal.step_tflop)).map(|(now, then)| now / then - 1.0);
    let longer = now / then - 1.0;
    let spread = run.median(|normal| normal.step_ms_spread).unwrap_or(0.0) / then;
    if longer < LONGER.max(SPREADS * spread) || more.is_some_and(|more| more.abs() > SAME_WORK) {
        return None;
    }
    let since: Vec<_> =
        asked.iter().filter_map(|(_, view)| since(view, then * (1.0 + longer / 2.0))).collect();
    let since_s =
        median(since.iter().map(|since| since.seconds).collect()).filter(|since| *since >= ENOUGH)?;
    let most = |of: fn(&Since) -> bool| since.iter().filter(|since| of(since)).count() * 2 > since.len();
    let lost = 1.0 - then / now;
    let explained: f64 = others.iter().filter_map(|finding| finding.cost).map(|cost| cost.pct / 100.0).sum();
    let dearest = others.iter().find(|finding| !finding.ranks.is_empty() && finding.cost.is_some());
    let (ranks, why) = match dearest {
        Some(finding) => {
            let who = phrase::ranks(&finding.ranks);
            (
                finding.ranks.clone(),
                format!("{who} costs {:.0} % of the time: see its own finding", 100.0 * explained),
            )
        }
        None => cause(job, run, lost),
    };
    let when = match (most(|since| since.from_first), most(|since| since.throughout)) {
        (true, _) => "from the first step".to_owned(),
        (false, true) => format!("for all of the {since_s:.0} s known"),
        (false, false) => format!("for the last {since_s:.0} s"),
    };
    let gpu = if run.gpu.name.is_empty() { String::new() } else { format!(" on {}", run.gpu.name) };
    let evidence =
        Evidence::PastRun(PastRun { step_ms: now, past_step_ms: then, day: run.day(), gpu, when, why });
    // It has no cost of its own if the others' findings account for it.
    let step = Some(Nanoseconds((now * 1e6) as u64));
    let left = Some(lost - explained).filter(|left| *left > 0.0);
    let cost = left.map(|left| Cost::of(left, 2.0 * spread, step, job.ranks().len(), since_s));
    Some(Finding {
        kind: Kind::Regression,
        class: Class::PastRun,
        ranks,
        confidence: Confidence::Likely,
        severity: Severity::Slow,
        since_s,
        evidence,
        advice: "look at what changed between the runs: code, data, library and driver versions, the hosts, their clocks and power limits".to_owned(),
        collective: None,
        cost,
    })
}

/// The time for which steps have taken longer than in that run.
struct Since {
    seconds: f64,
    /// Whether steps have been longer since the job's first steps, or for as long as steps are known.
    from_first: bool,
    throughout: bool,
}

fn since(view: &RankView, than_ms: f64) -> Option<Since> {
    let (mut excess, mut most, mut passed) = (0.0, 0.0, 0.0);
    let (mut since, mut steps, mut at_since) = (0.0, 0.0, 0.0);
    for sample in view.pace_samples().rev() {
        let (span, count) = (f64::from(sample.span), f64::from(sample.steps));
        passed += span;
        steps += count;
        excess += if 1e3 * span / count > than_ms { span } else { -span };
        if excess > most {
            (most, since, at_since) = (excess, passed, steps);
        }
    }
    let nearly = |all: f64| all - at_since <= FIRST + UNHEARD * steps / passed.max(1.0);
    let completed = view.step()?.0 as f64;
    Some(Since { seconds: since, from_first: nearly(completed), throughout: nearly(steps) })
}

/// The cause, from a comparison with the same ranks of that run.
fn cause(job: &Job, run: &Baseline, lost: f64) -> (Vec<Rank>, String) {
    let pairs: Vec<_> = job.ranks().filter_map(|(rank, view)| Some((rank, view, run.rank(rank)?))).collect();
    let changes = |of: &dyn Fn(&RankView, &Normal) -> Option<f64>| -> Vec<(Rank, f64)> {
        pairs.iter().filter_map(|&(rank, view, normal)| Some((rank, of(view, normal)?))).collect()
    };
    let worst = |changes: &[(Rank, f64)]| -> Vec<Rank> {
        let usual = median(changes.iter().map(|&(_, change)| change).collect()).unwrap_or(0.0);
        let usual = if changes.len() < 3 {
            changes.iter().map(|&(_, change)| change).fold(f64::INFINITY, f64::min)
        } else {
            usual
        };
        let apart = changes.iter().filter(|&&(_, change)| change - usual > EXPLAINS * lost);
        let ranks: Vec<Rank> = apart.map(|&(rank, _)| rank).collect();
        if ranks.len() > (changes.len() / FEW).max(1) { Vec::new() } else { ranks }
    };
    // Ranks for which the others wait now, but did not wait in that run.
    let waited_for = changes(&|view, normal| Some(view.straggler_delay()?.cost - normal.cost_pct? / 100.0));
    let ranks = worst(&waited_for);
    if !ranks.is_empty() {
        return (
            ranks.clone(),
            format!("the others wait for {}; in that run they did not", phrase::ranks(&ranks)),
        );
    }
    let slower = changes(&|view, normal| Some(1.0 - view.gemm_rate()?.0 / normal.gemm_tflops?));
    let ranks = worst(&slower);
    let rates = |rank: Rank| {
        let (_, view, normal) = pairs.iter().find(|(other, ..)| *other == rank)?;
        Some((view.gemm_rate()?.0, normal.gemm_tflops?))
    };
    if let Some((now, then)) = ranks.first().and_then(|&rank| rates(rank)) {
        let why = format!("GEMMs of {} run at {now:.1} TFLOPS, {then:.1} in that run", phrase::ranks(&ranks));
        return (ranks, why);
    }
    let middle = |changes: Vec<(Rank, f64)>| median(changes.into_iter().map(|(_, change)| change).collect());
    if let Some(share) = middle(slower).filter(|share| *share > EXPLAINS * lost) {
        return (
            Vec::new(),
            format!("GEMMs of all ranks run at {:.0} % fewer TFLOPS than in that run", 100.0 * share),
        );
    }
    let moved = changes(&|view, normal| Some(1.0 - job.bus_and_skew(view).0?.0 / normal.bus_gb_s?));
    if let Some(share) = middle(moved).filter(|share| *share > lost) {
        return (
            Vec::new(),
            format!("collectives move {:.0} % fewer bytes a second than in that run", 100.0 * share),
        );
    }
    (Vec::new(), "no single rank is later than in that run, and GEMMs run as fast".to_owned())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use xpu_simulation::Simulation;
    use xpu_wire::{
        frame::{Body, RankDigest},
        id::Step,
        unit::Moment,
    };

    use super::*;
    use crate::{
        baseline::{Measure, Runs},
        finding::Examiner,
        job::Jobs,
    };

    const SECOND: u64 = 1_000_000_000;
    const DAY: u64 = 86_400 * SECOND;

    /// Eight ranks with steps of this many milliseconds, from second `from` of the run on.
    struct Run {
        simulation: Simulation,
        ms: f64,
        from: u64,
        /// FLOPs of a step, relative to the usual step.
        work: f64,
        /// Rank 3's GEMMs take this multiple, and the others wait for it.
        slow: f64,
    }

    impl Run {
        fn on(day: u64, ms: f64) -> Self {
            let mut simulation = Simulation::new(3, 1, 8);
            simulation.started = Moment(simulation.started.0 + day * DAY);
            Self { simulation, ms, from: 0, work: 1.0, slow: 1.0 }
        }

        fn write(&self, digest: &mut RankDigest, second: u64) {
            let usual = 100.0;
            let before = (self.from.min(second) * 1000) as f64;
            let first = (before / usual).floor();
            let more = (((second * 1000) as f64 - first * usual) / self.ms).floor();
            let steps = first + more;
            let rank = digest.rank.0;
            digest.step = Some(Step(steps as u64));
            digest.step_at =
                Moment(self.simulation.started.0 + ((first * usual + more * self.ms) * 1e6) as u64);
            let pace = if second > self.from { self.ms } else { usual };
            digest.step_median = Some(Nanoseconds((pace * 1e6) as u64));
            digest.launches.collectives = steps as u64 * 4;
            digest.launches.gemms = steps as u64 * 96;
            digest.gemm_flops = steps * self.work * 40e12;
            digest.gemm_timed_flops = digest.gemm_flops / 16.0;
            let rate = 600e12 / if rank == 3 { self.slow } else { 1.0 };
            digest.gemm_timed_for = Nanoseconds((digest.gemm_timed_flops / rate * 1e9) as u64);
            digest.exposed_for = Some(Nanoseconds(second * SECOND * 3 / 10));
            let waits = if rank == 3 { 0.0 } else { (self.slow - 1.0) * 66.0 / 4.0 };
            for sample in &mut digest.samples {
                sample.duration.0 += (waits * 1e6) as u64;
            }
        }

        fn watched(&self, seconds: u64, mut look: impl FnMut(&Job)) -> Jobs {
            let mut jobs = Jobs::default();
            self.simulation.snapshots(0).iter().for_each(|frame| jobs.fold(frame));
            for second in 1..=seconds {
                let mut frame = self.simulation.digests(second).remove(0);
                let Body::Digest(digest) = &mut frame.body else { unreachable!() };
                digest.ranks.iter_mut().for_each(|digest| self.write(digest, second));
                jobs.fold(&frame);
                look(jobs.foremost().unwrap());
            }
            jobs
        }

        /// Its baseline.
        fn baseline(&self) -> Baseline {
            let mut measure = Measure::default();
            let jobs = self.watched(90, |job| measure.take(job));
            measure.baseline(jobs.foremost().unwrap(), "NVIDIA H200").unwrap()
        }

        fn found(&self, against: Baseline) -> Vec<Finding> {
            let jobs = self.watched(90, |_| {});
            let mut examiner = Examiner::default();
            examiner.compare_with(Some(&Arc::new(Runs::of(vec![against]))));
            examiner.examine(jobs.foremost().unwrap(), jobs.clock())
        }
    }

    #[test]
    fn a_run_that_is_slower_from_its_first_step_is_reported() {
        let found = Run::on(4, 108.0).found(Run::on(0, 100.0).baseline());
        let [finding] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((finding.kind, finding.class), (Kind::Regression, Class::PastRun));
        assert!(
            finding.evidence.to_string().contains("8 % more than the 100.0 ms of the run of Fri 15 Jan"),
            "{}",
            finding.evidence
        );
        assert!(finding.evidence.to_string().contains("from the first step"), "{}", finding.evidence);
        let cost = finding.cost.unwrap();
        assert!((cost.pct - 7.4).abs() < 0.3 && finding.severity == Severity::Slow, "{finding:#?}");
        assert!((finding.since_s - 90.0).abs() < 5.0 && finding.ranks.is_empty(), "{finding:#?}");
    }

    #[test]
    fn a_run_that_is_as_fast_or_does_other_work_is_not() {
        let baseline = || Run::on(0, 100.0).baseline();
        assert_eq!(Run::on(4, 100.0).found(baseline()), []);
        assert_eq!(Run::on(4, 95.0).found(baseline()), []);
        assert_eq!(Run { work: 2.0, ..Run::on(4, 120.0) }.found(baseline()), []);
        assert_eq!(Run::on(4, 120.0).found(Baseline { world_size: 16, ..baseline() }), []);
    }

    /// The cost belongs to the slow rank, and is reported only once.
    #[test]
    fn the_rank_that_is_slower_than_then_is_named_and_not_its_victims() {
        let baseline = Run::on(0, 100.0).baseline();
        let found = Run { slow: 1.3, ..Run::on(4, 120.0) }.found(baseline.clone());
        let past = found.iter().find(|finding| finding.class == Class::PastRun);
        let past = past.unwrap_or_else(|| panic!("{found:#?}"));
        assert!(found.iter().all(|finding| finding.ranks == [Rank(3)]), "{found:#?}");
        let lost = 100.0 * (1.0 - 100.0 / 120.0);
        let sum = crate::finding::Lost::to(&found).unwrap().cost.pct;
        assert!(sum < lost + 5.0, "{sum} of {lost}: {found:#?}");
        assert!(past.evidence.to_string().contains("20 % more"), "{}", past.evidence);
        // If no rule names the rank, the comparison with that run does.
        let jobs = Run { slow: 1.3, ..Run::on(4, 120.0) }.watched(90, |_| {});
        let alone = slower(jobs.foremost().unwrap(), &baseline, &[]).unwrap();
        assert_eq!(alone.ranks, [Rank(3)], "{}", alone.evidence);
    }

    #[test]
    fn when_it_became_slower_is_reported() {
        let found = Run { from: 50, ..Run::on(4, 108.0) }.found(Run::on(0, 100.0).baseline());
        let [finding] = &found[..] else { panic!("{found:#?}") };
        assert!((finding.since_s - 40.0).abs() < 4.0, "{finding:#?}");
        assert!(!finding.evidence.to_string().contains("from the first step"), "{}", finding.evidence);
    }
}
