//! What the screen says of a job, worked out once per picture and not once per frame.
//!
//! Of ten thousand ranks a few hundred report between two pictures. A rank's figures are worked out again only when it
//! has reported; what takes all ranks (order, scales) only when the job's revision moved.

use std::{collections::BTreeSet, time::Duration};

use xpu_shared::{
    capture::Groups,
    finding::{self, Finding},
    frame::Life,
    id::{HostName, JobName, Rank, Step},
    job::{Job, PartlySeen, RankView, median},
    status::{self, RankState, RankStatus, StepSign},
    unit::{Moment, Nanoseconds},
};

use super::{Bundle, Fold, Inspection, Metric, Odd, Seats, Sort};
use crate::{
    filter::{Filter, Subject},
    widget::scale::Scale,
};

/// A rank that has not been heard of for so long is drawn as old: collectors speak once a second.
pub(super) const STALE: Duration = Duration::from_secs(5);

/// One rank.
#[derive(Clone, Debug)]
pub struct Row {
    pub status: RankStatus,
    pub life: Life,
    heard: Moment,
    /// Since it was last heard of.
    pub age: Duration,
    /// What its products reach of what its GPU can do at the clock it has now, in percent.
    pub of_peak: Option<f64>,
    /// The filter leaves it out.
    pub aside: bool,
}

impl Row {
    fn of(job: &Job, rank: Rank, view: &RankView) -> Self {
        let status = status::rank_status(job, rank);
        let of_peak = of_peak(&status, view);
        let (life, heard) = (view.life(), view.heard());
        Self { status, life, heard, age: Duration::ZERO, of_peak, aside: false }
    }

    fn is_of(&self, rank: Rank, view: &RankView) -> bool {
        let known = (self.status.rank, self.status.pid, self.life, self.heard);
        known == (rank, view.pid(), view.life(), view.heard()) && self.status.host == *view.host()
    }

    /// How bad its state is: a rank nothing is heard of is at least silent.
    pub fn severity(&self) -> RankState {
        let old = self.life == Life::Alive && !self.is_fresh();
        if old { self.status.state.max(RankState::Silent) } else { self.status.state }
    }

    fn subject<'a>(&'a self, job: &'a JobName) -> Subject<'a> {
        Subject { status: &self.status, state: self.severity(), job }
    }

    /// Whether its figures are of now.
    pub fn is_fresh(&self) -> bool {
        self.life == Life::Alive && self.age < STALE
    }
}

/// Where the driver does not tell the clock, of the peak as the data sheet has it.
fn of_peak(status: &RankStatus, view: &RankView) -> Option<f64> {
    let share = status.gemm_tflops?.0 / view.gemm_peak()?.0;
    let device = status.device.as_ref().filter(|device| !device.is_stale());
    let clocks = device.and_then(|device| device.sm_max_mhz.zip(device.sm_mhz));
    let slower =
        clocks.filter(|&(_, now)| now > 0).map_or(1.0, |(most, now)| f64::from(most) / f64::from(now));
    Some(share * slower * 100.0)
}

#[derive(Debug, Default)]
pub struct Survey {
    job: JobName,
    /// The job's revision, the arrangement and the second all this is of.
    made: Option<(u64, Arrangement, u64)>,
    rows: Vec<Row>,
    pub seats: Seats,
    /// What is listed: rows, or the worst row of each bundle; those left out are not among them.
    pub order: Vec<usize>,
    /// What came of the filter, while there is one.
    pub sifted: Option<Sifted>,
    /// Empty unless ranks are folded.
    pub bundles: Vec<Bundle>,
    /// What decides which rank of a bundle is its worst.
    pub judge: Metric,
    /// In the order of [`Metric::ALL`].
    scales: [Option<Scale>; Metric::ALL.len()],
    pub odd: Option<Odd>,
    pub findings: Vec<Finding>,
    /// The second the findings are of, and how many ranks lived.
    examined: Option<(u64, usize)>,
    pub world_size: u32,
    pub hosts: usize,
    pub steps: Option<(Step, Step)>,
    pub step_time: Option<Nanoseconds>,
    /// As it was when it was last known: in a job that stands, lateness is still a share of a step.
    usual_step: Option<Nanoseconds>,
    /// Who says where steps end.
    pub step_sign: Option<StepSign>,
    /// Of all current ranks that say so, together.
    pub tokens_per_s: Option<f64>,
    /// Mean over the current ranks of which it is known.
    pub mfu: Option<f64>,
    /// Since any rank completed a step.
    pub since_step: Option<Duration>,
    /// Since anything was heard of the job.
    pub age: Duration,
    /// Ranks that say now how they do, or said goodbye.
    pub heard: usize,
    /// How much is seen of a communicator of which not all is: what keeps bandwidth from being known.
    pub partly_seen: Option<PartlySeen>,
    /// Living ranks whose hook is off.
    pub ranks_off: usize,
    /// What hooks cannot see.
    pub blind: Vec<String>,
    /// Processes that claim ranks which others are.
    pub turned_away: u32,
    pub losses: Losses,
    /// Share of wall time the hook took from launching threads, the worst rank's.
    pub overhead: f64,
    /// The rank that is looked at, with its shapes and sizes.
    pub inspected: Option<Inspection>,
    /// The rank and the job's revision it is of.
    inspection: Option<(Rank, u64)>,
}

/// What came of a filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sifted {
    /// The filter, as it was written.
    pub text: String,
    /// Ranks it lets through.
    pub shown: usize,
    /// Ranks of which it is not known whether it should.
    pub unknown: usize,
}

/// How the user wants the ranks listed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arrangement {
    pub sort: Sort,
    pub fold: Fold,
    pub groups: Option<Groups>,
    /// Of ranks in the same state, that is worst which is worst by this.
    pub judge: Metric,
}

/// What was not seen, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    pub records: u64,
    pub frames: u64,
    /// Operations that should have been timed.
    pub untimed: u64,
}

impl Survey {
    pub(super) fn update(
        &mut self,
        job: &Job,
        lost_frames: u64,
        now: Moment,
        arrangement: Arrangement,
        filter: Option<&Filter>,
        age: impl Fn(&HostName, Moment) -> Duration,
    ) {
        if self.job != *job.name() {
            *self = Self { job: job.name().clone(), ..Self::default() };
        }
        // Ages are shown in seconds: within one, nothing but the job itself can change the picture.
        let making = Some((job.revision(), arrangement, now.0 / 1_000_000_000));
        let sifted = self.sifted.as_ref().map(|sifted| sifted.text.as_str());
        if self.made == making && sifted == filter.map(Filter::text) {
            return;
        }
        self.refresh_rows(job);
        for row in &mut self.rows {
            row.age = age(&row.status.host, row.heard);
        }
        self.losses.frames = lost_frames;
        self.work_out(job, now, age);
        self.sift(filter);
        if let Some((_, arrangement, _)) = &making {
            self.arrange(job, arrangement);
        }
        self.made = making;
    }

    /// Lists the ranks, or of each bundle the worst one.
    fn arrange(&mut self, job: &Job, wanted: &Arrangement) {
        self.judge = wanted.judge;
        let mut bundles = wanted.fold.bundles(job, &self.rows, wanted.groups.as_ref());
        let folded = !bundles.is_empty();
        for bundle in &mut bundles {
            bundle.rows.retain(|&row| !self.rows[row].aside);
        }
        bundles.retain(|bundle| !bundle.rows.is_empty());
        for bundle in &mut bundles {
            bundle.worst = self.worst_of(&bundle.rows).unwrap_or(bundle.worst);
        }
        self.order = if folded {
            wanted.sort.arrange(bundles.iter().map(|bundle| bundle.worst).collect(), &self.rows)
        } else {
            wanted.sort.order(&self.rows)
        };
        self.order.retain(|&row| !self.rows[row].aside);
        self.bundles = bundles;
    }

    /// By state, and of those in the same state by what is looked at.
    fn worst_of(&self, rows: &[usize]) -> Option<usize> {
        let scale = self.scale(self.judge);
        let badness = |row: usize| {
            let known = scale.zip(self.judge.of(&self.rows[row]).filter(|_| self.rows[row].is_fresh()));
            known.map_or(f64::NEG_INFINITY, |(scale, value)| scale.badness(value))
        };
        let worse = |one: usize, other: usize| {
            let states = self.rows[other].severity().cmp(&self.rows[one].severity());
            if states.then(badness(other).total_cmp(&badness(one))).is_gt() { other } else { one }
        };
        rows.iter().copied().reduce(worse)
    }

    /// Where a row stands in the list: itself, or what it is folded into.
    pub fn listed(&self, row: usize) -> Option<usize> {
        let shown = self.bundle_of(row).map_or(row, |bundle| bundle.worst);
        self.order.iter().position(|&listed| listed == shown)
    }

    /// What a row is folded into.
    pub fn bundle_of(&self, row: usize) -> Option<&Bundle> {
        self.bundles.iter().find(|bundle| bundle.rows.binary_search(&row).is_ok())
    }

    /// Works out the details of one rank, which need not have changed with its row.
    pub(super) fn inspect(&mut self, job: &Job, rank: Option<Rank>) {
        let inspection = rank.map(|rank| (rank, job.revision()));
        if self.inspection != inspection {
            self.inspection = inspection;
            self.inspected = rank.and_then(|rank| Inspection::of(job, rank, self));
        }
    }

    /// Works out anew the ranks that have reported. Ranks only ever come to a job, so both lists are in one order.
    fn refresh_rows(&mut self, job: &Job) {
        if self.rows.len() != job.ranks().len() {
            let mut old = std::mem::take(&mut self.rows).into_iter().peekable();
            for (rank, view) in job.ranks() {
                let kept = old.next_if(|row| row.status.rank == rank);
                self.rows.push(kept.unwrap_or_else(|| Row::of(job, rank, view)));
            }
        }
        for (row, (rank, view)) in self.rows.iter_mut().zip(job.ranks()) {
            if !row.is_of(rank, view) {
                *row = Row::of(job, rank, view);
            }
        }
    }

    fn work_out(&mut self, job: &Job, now: Moment, age: impl Fn(&HostName, Moment) -> Duration) {
        self.world_size = job.world_size();
        let heard = || self.rows.iter().filter(|row| row.is_fresh() || row.life == Life::Ended);
        let over = self.is_over();
        self.heard = if over { self.rows.len() } else { heard().count() };
        self.hosts = if over {
            job.hosts().len()
        } else {
            heard().map(|row| &row.status.host).collect::<BTreeSet<_>>().len()
        };
        self.seats = Seats::of(&self.rows, self.world_size);
        let steps = || self.current().filter_map(|row| row.status.step);
        self.steps = steps().min().zip(steps().max());
        self.step_time = median(self.current().filter_map(|row| row.status.step_ms_p50).collect())
            .map(|milliseconds| Nanoseconds((milliseconds * 1e6) as u64));
        self.usual_step = self.step_time.or(self.usual_step);
        self.scales = Metric::ALL.map(|metric| self.measure(metric));
        self.step_sign = self.current().filter_map(|row| row.status.step_source).max();
        self.tokens_per_s = status::sum(self.current().filter_map(|row| row.status.tokens_per_s));
        self.mfu = status::mean(self.current().filter_map(|row| row.status.mfu));
        self.age = self.rows.iter().map(|row| row.age).min().unwrap_or_default();
        let digests = || job.ranks().filter_map(|(_, view)| Some((view.host(), view.latest()?)));
        let stepped = digests().filter(|(_, digest)| digest.step.is_some());
        self.since_step = stepped.map(|(host, digest)| age(host, digest.step_at)).min();
        self.losses.records = digests().map(|(_, digest)| digest.dropped_records).sum();
        self.losses.untimed = digests().map(|(_, digest)| digest.untimed).sum();
        self.overhead = digests().map(|(_, digest)| f64::from(digest.overhead_ppm) / 1e6).fold(0.0, f64::max);
        self.partly_seen = job.partly_seen();
        self.ranks_off = status::ranks_off(job);
        self.blind = status::blind(job);
        self.turned_away = job.turned_away();
        self.examine(job, now);
        self.odd = Odd::among(self);
    }

    /// Looks for what is wrong: at most once a second, for it takes all ranks, or when a rank came or went.
    fn examine(&mut self, job: &Job, now: Moment) {
        let examination = (now.0 / 1_000_000_000, job.living());
        if self.examined != Some(examination) {
            self.examined = Some(examination);
            self.findings = finding::examine(job, now);
        }
        for row in &mut self.rows {
            if let Some(view) = job.rank(row.status.rank) {
                row.status.state = finding::state(&self.findings, row.status.rank, view);
            }
        }
    }

    /// Leaves out of the list what the filter does not let through.
    fn sift(&mut self, filter: Option<&Filter>) {
        let Some(filter) = filter else {
            self.rows.iter_mut().for_each(|row| row.aside = false);
            self.sifted = None;
            return;
        };
        let judge = filter.judge(self.current().map(|row| row.subject(&self.job)));
        let verdicts: Vec<_> = self.rows.iter().map(|row| judge.verdict(row.subject(&self.job))).collect();
        let count = |verdict| verdicts.iter().filter(|one| **one == verdict).count();
        self.sifted =
            Some(Sifted { text: filter.text().to_owned(), shown: count(Some(true)), unknown: count(None) });
        for (row, verdict) in self.rows.iter_mut().zip(verdicts) {
            row.aside = verdict != Some(true);
        }
    }

    /// What the job stands for.
    pub fn standstill(&self) -> Option<&Finding> {
        self.findings.iter().find(|finding| finding.stops_the_job())
    }

    /// Ranks that wait for others.
    pub fn waiting(&self) -> usize {
        self.rows.iter().filter(|row| row.status.state == RankState::Waiting).count()
    }

    /// Ranks that were seen, in order.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The ranks' range of a metric; `None` while none is known.
    pub fn scale(&self, metric: Metric) -> Option<&Scale> {
        self.scales[metric as usize].as_ref()
    }

    fn measure(&self, metric: Metric) -> Option<Scale> {
        let values = self.current().filter_map(|row| metric.of(row)).collect();
        Scale::measured(values, metric.worse(), self.whole(metric))
    }

    /// What differences are measured against, if not the median: the usual lateness is next to nothing, and what counts is its
    /// share of a step.
    pub(super) fn whole(&self, metric: Metric) -> Option<f64> {
        self.usual_step.map(Nanoseconds::milliseconds).filter(|_| metric == Metric::Lateness)
    }

    /// The quantities of which any rank has a figure, and those whose absence is told.
    pub fn told(&self) -> Vec<Metric> {
        let told = |metric: &Metric| metric.is_always_shown() || self.scale(*metric).is_some();
        Metric::ALL.into_iter().filter(told).collect()
    }

    pub fn row_of(&self, rank: Rank) -> Option<usize> {
        self.rows.binary_search_by_key(&rank, |row| row.status.rank).ok()
    }

    /// The row of the worst, by a metric.
    pub fn worst(&self, metric: Metric) -> Option<(&Row, f64)> {
        let scale = self.scale(metric)?;
        let known = self.current().filter_map(|row| Some((row, metric.of(row)?)));
        known.reduce(|one, other| if scale.badness(other.1) > scale.badness(one.1) { other } else { one })
    }

    /// Whether no rank says any more how it does: the job is over, or no host is heard.
    pub fn is_frozen(&self) -> bool {
        !self.rows.iter().any(Row::is_fresh)
    }

    /// The rows whose figures count: those of now, and once there are none, all as they were last.
    fn current(&self) -> impl Iterator<Item = &Row> + Clone {
        let frozen = self.is_frozen();
        self.rows.iter().filter(move |row| frozen || row.is_fresh())
    }

    pub fn is_stale(&self) -> bool {
        self.age >= STALE
    }

    /// Whether every rank that was seen has ended.
    pub fn is_over(&self) -> bool {
        !self.rows.is_empty() && self.rows.iter().all(|row| matches!(row.life, Life::Ended | Life::Died))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use xpu_shared::{job::Jobs, simulation::Simulation};

    use super::*;

    /// A rank that has just come: no figure is known of it.
    pub(in crate::app) fn row(rank: u32, host: &str) -> Row {
        let mut jobs = Jobs::default();
        jobs.fold(&Simulation::new(1, 1, 1).snapshots(0)[0]);
        let job = jobs.foremost().unwrap();
        let mut row = Row::of(job, Rank(0), job.rank(Rank(0)).unwrap());
        (row.status.rank, row.status.host) = (Rank(rank), host.into());
        row
    }
}
