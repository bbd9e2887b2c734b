//! What the follower has received: each job's state, as every viewer has it, and the totals of each rank's
//! details.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    time::{Duration, Instant},
};

use xpu_model::{
    finding::{self, EndedFindings, Finding},
    job::{Clock, Job, Jobs},
    status::Status,
    step_times::StepTimes,
};
use xpu_net::subscriptions::{self, Subscriptions, TopicChanges};
use xpu_wire::{
    frame::{Body, Event, Frame, topic},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use crate::metrics::{Pages, Tally};

/// Largest number of ranks with subscribed details, which include histograms. A host has tens of ranks. A
/// relay may have ten thousand, whose details would be hundreds of megabytes a second.
const DETAILED: usize = 1024;

/// Number of ranks whose shapes are followed at a time, and for how long after the last request.
const LOOKED_AT: usize = 16;
const LOOKED_FOR: Duration = Duration::from_mins(1);

/// A rank missing from all snapshots for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(10);

/// Jobs followed.
const JOBS: usize = 256;

/// Streams whose numbers are checked for gaps.
const STREAMS: usize = 32_768;

type Place = (JobName, Rank);

#[derive(Debug, Default)]
pub(crate) struct Known {
    jobs: Jobs,
    clock: Clock,
    /// The findings of each job, with those that ended.
    chronicles: BTreeMap<JobName, EndedFindings>,
    step_times: BTreeMap<JobName, StepTimes>,
    tallies: BTreeMap<Place, Tally>,
    /// When each rank was last in a snapshot.
    reported: BTreeMap<Place, Moment>,
    /// When a reader last requested a rank's details.
    looked_at: BTreeMap<Place, Instant>,
    subscriptions: Subscriptions,
    numbers: HashMap<(HostName, Vec<u8>), u64>,
    missed: u64,
    pages: Pages,
    since: Moment,
    has_snapshot: bool,
    /// The moment of the recording that is shown; `None` for live data.
    still: Option<Moment>,
}

impl Known {
    pub(crate) fn new(since: Moment, pages: Pages) -> Self {
        Self { pages, since, ..Self::default() }
    }

    /// The state of a recording at this moment, before its frames are read.
    pub(super) fn recorded(at: Moment, pages: Pages) -> Self {
        Self { has_snapshot: true, still: Some(at), ..Self::new(at, pages) }
    }

    /// Sets the moment of the recording that is shown.
    pub(super) fn set_position(&mut self, at: Moment) {
        self.still = Some(at);
    }

    /// Takes a frame of a recording. Details, which a live job has only on request, are taken of all ranks.
    pub(super) fn replay(&mut self, frame: &Frame) {
        match &frame.body {
            Body::Detail(_) | Body::NcclDetail(_) => self.jobs.fold(frame),
            Body::History(history) => history.frames.frames().for_each(|frame| self.fold(&frame)),
            _ => self.fold(frame),
        }
    }

    /// The moment of the recording that is shown; `None` for live data.
    pub(crate) fn recorded_at(&self) -> Option<Moment> {
        self.still
    }

    /// Whether a snapshot has come.
    pub(crate) fn has_snapshot(&self) -> bool {
        self.has_snapshot
    }

    pub(crate) fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The current time on the jobs' hosts.
    pub(crate) fn there(&self, now: Moment) -> Moment {
        self.still.unwrap_or_else(|| self.clock.there(now))
    }

    /// The findings of a job, with what is known of the time before.
    pub(crate) fn findings(&self, job: &Job, now: Moment) -> Vec<Finding> {
        let mut findings = finding::examine(job, now);
        if let Some(ended_findings) = self.chronicles.get(job.name()) {
            ended_findings.extend(&mut findings, job, now);
        }
        findings
    }

    /// The status of a job, with its findings that have ended: those of its history that are not among the
    /// present findings.
    pub(crate) fn status(&self, job: &Job, now: Moment) -> Status {
        let mut status = Status::with(&self.jobs, job, self.findings(job, now), now);
        if let Some(ended_findings) = self.chronicles.get(job.name()) {
            status.ended_findings = ended_findings.gone(&status.findings);
        }
        status
    }

    pub(crate) fn step_times(&self, job: &JobName) -> Option<&StepTimes> {
        self.step_times.get(job)
    }

    pub(crate) fn tally(&self, job: &JobName, rank: Rank) -> Option<&Tally> {
        self.tallies.get(&(job.clone(), rank))
    }

    /// Options of the pages, in addition to the native metrics.
    pub(crate) fn pages(&self) -> &Pages {
        &self.pages
    }

    /// The time from which histograms are summed.
    pub(crate) fn since(&self) -> Moment {
        self.since
    }

    /// Published frames that did not arrive.
    pub(crate) fn missed(&self) -> u64 {
        self.missed
    }

    pub(crate) fn look_at(&mut self, job: JobName, rank: Rank, now: Instant) {
        let place = (job, rank);
        if self.looked_at.len() < LOOKED_AT || self.looked_at.contains_key(&place) {
            self.looked_at.insert(place, now);
        }
    }

    pub(crate) fn take(&mut self, topic: &[u8], frame: &Frame, now: Moment) {
        if !topic.is_empty() {
            self.count(topic, frame);
        }
        match &frame.body {
            Body::NcclDetail(nccl) => {
                let place = (nccl.job.clone(), nccl.rank);
                if self.looked_at.contains_key(&place) {
                    self.jobs.fold(frame);
                }
                self.tallies.entry(place).or_default().take_nccl(&nccl.report);
                return;
            }
            Body::Detail(detail) => {
                let place = (detail.job.clone(), detail.rank);
                if self.looked_at.contains_key(&place) {
                    self.jobs.fold(frame);
                }
                if let Some(job) = self.jobs.get(&detail.job)
                    && let Some(view) = job.rank(detail.rank)
                {
                    let tally = self.tallies.entry(place).or_default();
                    tally.take(&detail.summary, view.pid(), view.world_size());
                    tally.take_recent(detail, job, &self.pages, now);
                }
                return;
            }
            Body::Snapshot(snapshot) => {
                self.has_snapshot = true;
                let ranks = snapshot
                    .jobs
                    .iter()
                    .flat_map(|job| job.ranks.iter().map(|rank| (job.job.clone(), rank.info.rank)));
                self.reported.extend(ranks.map(|place| (place, now)));
            }
            Body::Event(Event::Joined(info)) => {
                self.reported.insert((info.job.clone(), info.rank), now);
            }
            _ => {}
        }
        if let Body::History(history) = &frame.body {
            history.frames.frames().for_each(|frame| self.fold(&frame));
        } else {
            self.fold(frame);
        }
        self.clock.update(&self.jobs, now);
    }

    fn fold(&mut self, frame: &Frame) {
        let now = self.jobs.clock();
        for job in self.jobs.iter().take(JOBS) {
            if !self.chronicles.contains_key(job.name()) {
                self.chronicles.insert(job.name().clone(), EndedFindings::default());
            }
            if let Some(ended_findings) = self.chronicles.get_mut(job.name()) {
                ended_findings.look(job, now);
            }
            if !self.step_times.contains_key(job.name()) {
                self.step_times.insert(job.name().clone(), StepTimes::default());
            }
            if let Some(step_times) = self.step_times.get_mut(job.name()) {
                step_times.follow(job, now);
            }
        }
        self.jobs.fold(frame);
    }

    /// Counts the frames missing before this one: the numbers of a stream count up by one.
    fn count(&mut self, topic: &[u8], frame: &Frame) {
        let stream = (frame.host.clone(), topic.to_vec());
        if self.numbers.len() >= STREAMS && !self.numbers.contains_key(&stream) {
            return;
        }
        if let Some(before) = self.numbers.insert(stream, frame.number) {
            // A restarted collector counts from the beginning, which is no loss.
            self.missed += frame.number.saturating_sub(before + 1);
        }
    }

    /// Forgets ranks that are gone, and returns the topics to subscribe to from now on.
    pub(crate) fn topic_changes(&mut self, instant: Instant, now: Moment) -> TopicChanges {
        self.looked_at.retain(|_, looked| instant.duration_since(*looked) < LOOKED_FOR);
        let Self { looked_at, reported, .. } = self;
        reported.retain(|_, reported| now.since(*reported) < FORGOTTEN);
        self.jobs.forget(|job, rank| !reported.contains_key(&(job.clone(), rank)));
        self.chronicles.retain(|job, _| self.jobs.get(job).is_some());
        self.step_times.retain(|job, _| self.jobs.get(job).is_some());
        self.jobs.keep_details(|job, rank| looked_at.contains_key(&(job.clone(), rank)));
        self.tallies.retain(|place, _| reported.contains_key(place));
        let topic_changes = self.subscriptions.change_to(self.wanted());
        // Frames published without a subscription do not count as missed.
        self.numbers.retain(|(_, topic), _| {
            !topic_changes.unsubscribe.iter().any(|gone| topic.starts_with(gone.as_bytes()))
        });
        topic_changes
    }

    fn wanted(&self) -> BTreeSet<String> {
        let jobs = || self.jobs.iter().take(JOBS);
        let general = jobs().flat_map(|job| subscriptions::of_job(job.name()));
        let ranks = jobs().flat_map(|job| job.ranks().map(|(rank, _)| topic::detail(job.name(), rank)));
        general.chain(ranks.take(DETAILED)).collect()
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;

    use super::*;

    fn snapshot(known: &mut Known, simulation: &Simulation, now: Moment) {
        for frame in simulation.snapshots(60) {
            known.take(b"", &frame, now);
        }
    }

    #[test]
    fn ranks_of_a_snapshot_are_known_until_no_collector_reports_them() {
        let simulation = Simulation::new(2, 2, 4);
        let (mut known, now) = (Known::new(Moment(0), Pages::default()), Moment(1_000_000_000_000));
        assert!(known.topic_changes(Instant::now(), now).subscribe.is_empty() && !known.has_snapshot());
        snapshot(&mut known, &simulation, now);
        let job = simulation.job.clone();
        let topic_changes = known.topic_changes(Instant::now(), now);
        assert_eq!(topic_changes.subscribe.len(), 2 + 8, "{topic_changes:?}");
        assert!(known.has_snapshot() && topic_changes.unsubscribe.is_empty());
        assert!(known.topic_changes(Instant::now(), now).subscribe.is_empty(), "once is enough");
        let later = now.after(FORGOTTEN);
        let topic_changes = known.topic_changes(Instant::now(), later);
        assert_eq!((topic_changes.unsubscribe.len(), known.jobs().get(&job).is_none()), (10, true));
    }

    /// Measures the cost of computing the topics: `cargo nextest run --release -p xpu-collector --run-ignored
    /// only --no-capture wishes_of`.
    #[test]
    #[ignore = "a measurement"]
    fn the_subscriptions_of_ten_thousand_ranks_are_timed() {
        let simulation = Simulation::new(7, 1_250, 8);
        let (mut known, now) = (Known::new(Moment(0), Pages::default()), Moment(1_000_000_000_000));
        snapshot(&mut known, &simulation, now);
        assert_eq!(known.reported.len(), 10_000);
        known.topic_changes(Instant::now(), now);
        let mut times: Vec<_> = (0..100)
            .map(|_| {
                let began = Instant::now();
                known.topic_changes(began, now);
                began.elapsed()
            })
            .collect();
        times.sort_unstable();
        println!("median {:?}, longest {:?}; once in {:?}", times[50], times[99], crate::follow::TIDY);
    }

    #[test]
    fn gaps_in_a_stream_are_counted_and_a_restarted_collector_is_no_gap() {
        let mut known = Known::default();
        let mut frame = Simulation::new(1, 1, 1).digests(5).remove(0);
        for number in [4, 5, 8, 1, 2] {
            frame.number = number;
            known.take(b"train/o", &frame, Moment(0));
        }
        assert_eq!(known.missed(), 2);
    }
}
