//! Takes a capture. All ranks get the same start in the future, a step or a moment, and each answers whether
//! it can record from there. No rank waits for another. If a rank is already past the start, all ranks get a
//! later one, once.

mod extent;
mod news;
mod plan;
mod samples;
mod sheet;
mod start_point;
mod tally;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use anyhow::Context as _;
pub use extent::Extent;
pub use news::{CaptureEvent, Outcome, Progress};
pub use plan::{Begin, Plan, Sampling, Wanted, window_length};
use samples::Samples;
use start_point::Again;
use tally::Tally;
use tokio::{
    select,
    time::{Instant, interval, timeout_at},
};
use xpu_model::{
    finding,
    job::{Job, RankView},
};
use xpu_recording::Header;
use xpu_wire::{
    frame::{Body, CaptureOrder, CaptureWindow, SampleOrder},
    id::{JobName, Rank, Step},
    unit::{Moment, Nanoseconds},
};

use crate::{
    arrival::{Arrival, Arrivals},
    follow::Following,
    inquiry::Inquiry,
    interactive::key_that_ends,
    live::{Live, WatchedRanks},
    recording_writer::RecordingWriter,
    sample::sample,
};

const FOLLOWER_ENDED: &str = "the connection to the collectors ended";

/// How long ranks may take to answer, and the interval at which the client asks silent ranks again.
const ANSWER: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Ranks begin to send what they have this long before the time limit, because sending takes a moment.
const SENDING: Duration = Duration::from_secs(3);

/// How long sampled stacks may take to arrive after everything else. Native frames get their names last.
const SAMPLES: Duration = Duration::from_secs(10);

/// Time to send the order that ends a capture.
const SENDS_END_WITHIN: Duration = Duration::from_millis(300);

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Interval of checks whether the job hangs. If so, the file gets the job's stacks, and the capture awaits no
/// more steps.
const EXAMINE: Duration = Duration::from_secs(1);

/// Time for the ranks of a hung job to send their data.
const DRAIN: Duration = Duration::from_secs(5);

/// Longest time that the job is watched for stragglers, including the capture.
const WATCH: Duration = Duration::from_secs(18);

/// When set, the capture ends.
pub type Stop = Arc<AtomicBool>;

/// What is captured, and the file it goes to, which does not exist yet.
#[derive(Debug)]
pub struct Request<'r> {
    pub path: &'r Path,
    pub header: &'r Header,
    pub job: JobName,
    pub ranks: Vec<Rank>,
    pub plan: Plan,
    pub stop: Stop,
}

/// A capture in progress, of a job that is already followed.
pub struct Taking<'a> {
    path: PathBuf,
    recording: RecordingWriter,
    tally: Tally,
    samples: Samples,
    following: &'a mut Following,
    live: &'a Live,
    plan: Plan,
    deadline: Instant,
    stop: Stop,
    report: &'a mut dyn FnMut(CaptureEvent),
    inquiry: Inquiry,
    began: Instant,
    examined: Instant,
    /// Why the job hangs.
    stall: Option<String>,
    /// Whether the capture no longer awaits steps.
    ended_early: bool,
}

impl fmt::Debug for Taking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taking").field("path", &self.path).field("tally", &self.tally).finish_non_exhaustive()
    }
}

/// The steps, or the period, that all ranks record.
struct StartPoint {
    first: Step,
    steps: u32,
    window: Option<CaptureWindow>,
}

impl StartPoint {
    /// A start point for a period, without steps.
    fn time(window: CaptureWindow) -> Self {
        Self { first: Step(0), steps: 0, window: Some(window) }
    }
}

impl<'a> Taking<'a> {
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn begin(
        request: Request<'_>,
        following: &'a mut Following,
        live: &'a Live,
        report: &'a mut dyn FnMut(CaptureEvent),
    ) -> std::io::Result<Self> {
        let Request { path, header, job, ranks, plan, stop } = request;
        let now = Instant::now();
        let shown = following.jobs().get(&job).map(|job| sample(job, None, &[])).unwrap_or_default();
        live.watch_ranks(Some(WatchedRanks {
            job: job.clone(),
            ranks: shown.into_iter().filter(|rank| ranks.contains(rank)).collect(),
        }));
        Ok(Self {
            path: path.to_owned(),
            recording: RecordingWriter::begin(path, header)?,
            tally: Tally::new(job, ranks),
            samples: Samples::default(),
            following,
            live,
            plan,
            deadline: now + plan.wait,
            stop,
            report,
            inquiry: Inquiry::default(),
            began: now,
            examined: now,
            stall: None,
            ended_early: false,
        })
    }

    /// Runs the capture to its end.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub async fn take(mut self, arrivals: &mut Arrivals) -> anyhow::Result<Outcome> {
        let outcome = self.run(arrivals).await;
        if let Err(error) = outcome {
            // A file with earlier frames can still be replayed.
            if !self.has_content() {
                self.recording.discard();
            }
            return Err(error);
        }
        self.finish()
    }

    async fn run(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        if matches!((self.plan.what, self.plan.begin), (Wanted::Steps(_), Begin::Soon | Begin::At(_))) {
            self.listen(arrivals).await?;
        }
        let known = start_point::completed(&self.views());
        for again in [false, true] {
            let Some(StartPoint { first, steps, window }) = self.start_point(again, known) else {
                self.tally.refuse_all(start_point::NO_STEPS);
                return Ok(());
            };
            let left = self.deadline.saturating_duration_since(Instant::now());
            let limit =
                if self.ended_early { Duration::ZERO } else { left.saturating_sub(SENDING).max(left / 2) };
            let limit = Nanoseconds::from(limit);
            let now = Moment::now();
            // The number is unique among viewers.
            let number = now.0 ^ u64::from(std::process::id()).rotate_left(40);
            let Plan { before, activity, functions, .. } = self.plan;
            let order = CaptureOrder { number, first, steps, limit, before, activity, functions };
            self.tally.begin(order, window);
            self.samples = Samples::of(number);
            self.open_sheet()?;
            self.agree(arrivals).await?;
            if !self.tally.is_any_late() {
                break;
            }
            self.live.end_capture(self.tally.job().clone(), number);
            let what = if window.is_some() { "time" } else { "step" };
            (self.report)(CaptureEvent::Word(format!(
                "a rank has already passed that {what}: all ranks record a later one"
            )));
        }
        self.collect(arrivals).await?;
        self.watch(arrivals).await
    }

    /// `None` while no rank's steps are known.
    fn start_point(&self, again: bool, known: Option<u64>) -> Option<StartPoint> {
        match (self.plan.what, self.plan.begin) {
            (Wanted::Steps(steps), Begin::Step(first)) if !again => {
                Some(StartPoint { first, steps, window: None })
            }
            (Wanted::Time(length), Begin::At(at)) if !again => {
                Some(StartPoint::time(CaptureWindow { at, length: length.into() }))
            }
            (Wanted::Steps(steps), _) => {
                let again = again.then(|| Again { known, furthest: self.tally.furthest() });
                Some(StartPoint {
                    first: start_point::first_step(&self.views(), again)?,
                    steps,
                    window: None,
                })
            }
            (Wanted::Time(length), _) => {
                let at = Moment::now().after(start_point::lead(again));
                Some(StartPoint::time(CaptureWindow { at, length: length.into() }))
            }
        }
    }

    /// The requested ranks that have reported.
    fn views(&self) -> Vec<&RankView> {
        let job = self.following.jobs().get(self.tally.job());
        let ranks = job.into_iter().flat_map(Job::ranks).filter(|(rank, _)| self.tally.wants(*rank));
        ranks.map(|(_, view)| view).collect()
    }

    /// Waits until the ranks' current steps and their steps per second are known.
    async fn listen(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        let until = self.began + start_point::LISTEN.min(self.plan.wait / 2);
        let known = |views: &[&RankView]| {
            start_point::completed(views).is_some() && start_point::is_rate_known(views)
        };
        while !known(&self.views()) && !self.stop.load(Relaxed) {
            match timeout_at(until, arrivals.recv()).await {
                Ok(arrival) => self.following.take(arrival.context(FOLLOWER_ENDED)?),
                Err(_over) => break,
            }
        }
        Ok(())
    }

    /// Waits until every rank has answered whether it records those steps.
    async fn agree(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        let deadline = self.deadline.min(Instant::now() + ANSWER);
        // Once: an older collector refuses it each time.
        if self.plan.functions_only {
            self.live.functions_only(self.tally.job().clone(), self.tally.order().number);
        }
        while Instant::now() < deadline.min(self.deadline)
            && !self.tally.is_answered()
            && !self.tally.is_any_late()
        {
            let unanswered = self.tally.unanswered();
            if let Some(order) = self.sample_order() {
                self.live.sample(self.tally.job().clone(), unanswered.clone(), order);
            }
            self.live.capture(self.tally.job().clone(), unanswered, self.tally.order(), self.tally.window());
            self.arrive(arrivals, deadline.min(Instant::now() + ASK_AGAIN), |taking| {
                taking.tally.is_answered() || taking.tally.is_any_late()
            })
            .await?;
        }
        Ok(())
    }

    fn sample_order(&self) -> Option<SampleOrder> {
        let (capture, window) = (self.tally.order(), self.tally.window());
        let Sampling { rate, natively } = self.plan.python?;
        Some(SampleOrder { capture, window, rate, natively })
    }

    /// Waits until every rank that may still send has sent everything.
    async fn collect(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        self.arrive(arrivals, self.deadline, |taking| {
            taking.tally.is_over() || Instant::now() >= taking.deadline
        })
        .await?;
        if !self.tally.is_over() {
            self.live.end_capture(self.tally.job().clone(), self.tally.order().number);
            // The order is sent with the next sweep of the connections.
            self.arrive(arrivals, Instant::now() + SENDS_END_WITHIN, |_: &Self| false).await?;
        }
        if self.plan.python.is_some() {
            let whole = |taking: &Self| taking.samples.are_whole(taking.tally.sending());
            self.arrive(arrivals, Instant::now() + SAMPLES, whole).await?;
        }
        Ok(())
    }

    /// Waits until a straggler would have been detected; a hung job needs no wait.
    async fn watch(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        let enough = |taking: &Self| taking.stall.is_some() || taking.following.is_watched();
        // After an interrupt, there is no further wait.
        if !self.plan.watch || self.ended_early || self.tally.whole() == 0 || enough(self) {
            return Ok(());
        }
        let word = "everything has arrived; watching the job some seconds longer for slow ranks";
        (self.report)(CaptureEvent::Word(format!("{word}{}", key_that_ends(" (Ctrl-C skips that)"))));
        self.arrive(arrivals, self.deadline.min(self.began + WATCH), enough).await
    }

    async fn arrive(
        &mut self,
        arrivals: &mut Arrivals,
        deadline: Instant,
        enough: impl Fn(&Self) -> bool,
    ) -> anyhow::Result<()> {
        let mut look = interval(LOOK_AGAIN);
        while !enough(self) {
            select! {
                arrival = arrivals.recv() => {
                    let arrival = arrival.context(FOLLOWER_ENDED)?;
                    if let Arrival::Frame(frame) = &arrival {
                        self.tally.take(frame);
                        self.samples.take(frame);
                        // Frames of an abandoned attempt are not kept.
                        if self.tally.keeps(frame) && self.samples.keeps(frame) {
                            self.recording.take(frame)?;
                        }
                    }
                    // Only the file needs details. In the followed state, they would waste memory.
                    if !matches!(&arrival, Arrival::Frame(frame) if matches!(frame.body, Body::Detail(_))) {
                        self.following.take(arrival);
                    }
                }
                _ = look.tick() => {
                    let due = self.recording.packer.due(Moment::now());
                    due.and_then(|blocks| self.recording.write(blocks))?;
                    self.tally.look(self.following, Instant::now());
                    self.examine();
                    if !self.tally.is_over() {
                        (self.report)(CaptureEvent::Far(self.tally.progress()));
                    }
                    if self.stop.swap(false, Relaxed) {
                        // A second stop, or a complete capture, ends the wait at once.
                        if self.ended_early || self.tally.is_over() {
                            self.deadline = Instant::now();
                            break;
                        }
                        self.end_early();
                    }
                    if Instant::now() >= deadline {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Checks whether the job hangs. If so, requests the stacks, and the data so far: no rank will reach the
    /// last step.
    fn examine(&mut self) {
        if self.examined.elapsed() < EXAMINE {
            return;
        }
        self.examined = Instant::now();
        let Some(job) = self.following.jobs().get(self.tally.job()) else { return };
        let now = Moment::now();
        let findings = finding::examine(job, now);
        let ranks = self.inquiry.due(job, &findings, now);
        if !ranks.is_empty() {
            self.live.records(job.name().clone(), ranks.clone());
            self.live.kept_stacks(job.name().clone(), ranks);
        }
        let why = self.tally.stall(job, &findings).map(|found| found.evidence.to_string());
        if let Some(evidence) = why.filter(|_| self.stall.is_none()) {
            (self.report)(CaptureEvent::Word(
                "the job hangs: capturing what the ranks still have".to_owned(),
            ));
            self.stall = Some(evidence);
        }
        // If the job hangs after the last step, all data has arrived. A period ends by itself, except for
        // unfinished GPU work.
        if self.stall.is_some() && !self.ended_early && !self.tally.is_over() && self.tally.is_past(now) {
            self.end_early();
        }
    }

    /// Orders every rank to send its data so far and to stop recording.
    fn end_early(&mut self) {
        self.ended_early = true;
        self.deadline = self.deadline.min(Instant::now() + DRAIN);
        self.tally.end_early();
        let (job, ranks) = (self.tally.job().clone(), self.tally.awaited());
        self.live.capture(job, ranks, self.tally.order(), self.tally.window());
    }
}

#[cfg(test)]
mod tests;
