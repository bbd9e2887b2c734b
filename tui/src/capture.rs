//! A capture being taken: the ranks are told a step that is still to come. Each says whether it can record from there; nobody waits
//! for anybody. If one is past it already all are told a later one, once.

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
use tokio::{
    select,
    time::{Instant, interval},
};
use xpu_shared::{
    finding,
    frame::{Body, CaptureOrder, CaptureSheet, Frame},
    id::{HostName, JobName, Rank, Step},
    job::RankView,
    recording::{Header, Writer},
    unit::{Moment, Nanoseconds},
};

use crate::{
    arrival::{Arrival, Arrivals},
    figure,
    follow::Following,
    inquiry::Inquiry,
    live::Live,
    recorder::create_new,
    reel::Reel,
};
use tally::Tally;

/// What is known of a rank's steps is at most so old, and telling it which to record takes some of that too.
const NEWS: Duration = Duration::from_millis(2500);

/// On the second try it is known how far the ranks are.
const FRESH_NEWS: Duration = Duration::from_millis(1500);

/// Steps that are left beyond that, for those that are shorter than others.
const STEPS_MORE: u64 = 3;

/// How long ranks may take to answer, and how often they are asked while one has not.
const ANSWER: Duration = Duration::from_secs(5);
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// Before the time is up ranks send what they have, which takes a moment.
const SENDING: Duration = Duration::from_secs(3);

/// How long that nobody wants a capture any more may take to go out.
const FAREWELL: Duration = Duration::from_millis(300);

const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How often it is asked whether the job stands: then its stacks belong to it.
const EXAMINE: Duration = Duration::from_secs(1);

/// What is wanted of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub steps: u32,
    /// Steps before those, as far as they were seen.
    pub before: u32,
    /// All kernels through CUPTI.
    pub activity: bool,
    /// Python's functions.
    pub functions: bool,
    /// How long all of it may take.
    pub wait: Duration,
}

/// How far a capture is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub first: Step,
    pub last: Step,
    pub ranks: usize,
    pub agreed: usize,
    /// Ranks of which all is here.
    pub whole: usize,
}

impl Progress {
    /// How many ranks are how far: until all agreed it is told who will send, then what came of it. A bar that is full
    /// while nothing is here would be taken for the end.
    pub fn far(&self) -> (usize, &'static str) {
        if self.whole > 0 || self.agreed >= self.ranks {
            (self.whole, "here")
        } else {
            (self.agreed, "agreed")
        }
    }

    /// How many of `cells` of a bar that is.
    pub fn filled(&self, cells: usize) -> usize {
        (cells * self.far().0).checked_div(self.ranks).unwrap_or(0).min(cells)
    }
}

/// `steps 812 to 814: 8 of 8 ranks agreed, 3 of 8 are here`
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, last, ranks, agreed, whole } = self;
        write!(f, "steps {first} to {last}: {agreed} of {ranks} ranks agreed, {whole} of {ranks} are here")
    }
}

/// What is told of it meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    Far(Progress),
    Word(String),
}

/// What came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub path: PathBuf,
    /// What is not as it should be.
    pub complaints: Vec<String>,
    /// `steps 812 to 814 of 8 of 8 ranks, 2,160 operations, none dropped`
    pub summary: String,
    pub bytes: u64,
    pub whole: usize,
    pub ranks: usize,
}

/// `c.bin: steps 812 to 814 of 8 of 8 ranks, 2,160 operations, none dropped; 18.4 KiB`
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.path.display(), self.summary, figure::bytes(self.bytes))
    }
}

/// Set by who wants a capture no more.
pub type Stop = Arc<AtomicBool>;

/// A capture under way, of a job that is followed already.
pub struct Taking<'a> {
    path: PathBuf,
    reel: Reel,
    tally: Tally,
    following: &'a mut Following,
    live: &'a Live,
    plan: Plan,
    deadline: Instant,
    stop: Stop,
    tell: &'a mut dyn FnMut(News),
    inquiry: Inquiry,
    examined: Instant,
}

impl fmt::Debug for Taking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Taking").field("path", &self.path).field("tally", &self.tally).finish_non_exhaustive()
    }
}

impl<'a> Taking<'a> {
    /// Into a file that is not there yet.
    pub fn begin(
        path: &Path,
        header: &Header,
        (job, ranks): (JobName, Vec<Rank>),
        (following, live): (&'a mut Following, &'a Live),
        plan: Plan,
        stop: Stop,
        tell: &'a mut dyn FnMut(News),
    ) -> std::io::Result<Self> {
        let now = Instant::now();
        let mut reel = Reel::new(Writer::begin(create_new(path)?, header)?);
        reel.write(following.recall()?)?;
        Ok(Self {
            path: path.to_owned(),
            reel,
            tally: Tally::new(job, ranks),
            following,
            live,
            plan,
            deadline: now + plan.wait,
            stop,
            tell,
            inquiry: Inquiry::default(),
            examined: now,
        })
    }

    /// To its end.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub async fn take(mut self, arrivals: &mut Arrivals) -> anyhow::Result<Outcome> {
        for news in [NEWS, FRESH_NEWS] {
            let Some(first) = self.first_step(news) else {
                self.tally.refuse_all("it has not completed a step yet; try again when it trains");
                return self.finish();
            };
            let left = self.deadline.saturating_duration_since(Instant::now());
            let limit = Nanoseconds::from(left.saturating_sub(SENDING).max(left / 2));
            let now = Moment::now();
            // Nobody else chooses the same one.
            let number = now.0 ^ u64::from(std::process::id()).rotate_left(40);
            let Plan { steps, before, activity, functions, .. } = self.plan;
            self.tally.begin(CaptureOrder { number, first, steps, limit, before, activity, functions });
            self.write_sheet(false)?;
            self.agree(arrivals).await?;
            if !self.tally.is_any_late() {
                break;
            }
            self.live.end_capture(self.tally.job().clone(), number);
            (self.tell)(News::Word("a rank is past that step already: all are told a later one".to_owned()));
        }
        self.collect(arrivals).await?;
        self.finish()
    }

    /// A step that no rank has begun when it hears of it.
    fn first_step(&self, news: Duration) -> Option<Step> {
        let job = self.following.jobs().get(self.tally.job())?;
        let views = || job.ranks().filter(|(rank, _)| self.tally.wants(*rank)).map(|(_, view)| view);
        let known = views().filter_map(RankView::step).map(|step| step.0).max();
        let completed = known.max(self.tally.furthest())?;
        let paces = views().filter_map(|view| view.step_time().or_else(|| view.pace()));
        let shortest = paces.map(|pace| pace.0).min().filter(|&pace| pace > 0);
        let pace = shortest.unwrap_or(1_000_000_000);
        let ahead = (news.as_nanos() as u64).div_ceil(pace);
        Some(Step(completed + ahead + STEPS_MORE))
    }

    /// Until every rank has said whether it records those steps.
    async fn agree(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        let deadline = self.deadline.min(Instant::now() + ANSWER);
        while Instant::now() < deadline.min(self.deadline)
            && !self.tally.is_answered()
            && !self.tally.is_any_late()
        {
            self.live.capture(self.tally.job().clone(), self.tally.unanswered(), self.tally.order());
            self.arrive(arrivals, deadline.min(Instant::now() + ASK_AGAIN), |tally| {
                tally.is_answered() || tally.is_any_late()
            })
            .await?;
        }
        Ok(())
    }

    /// Until every rank that may still send has sent all.
    async fn collect(&mut self, arrivals: &mut Arrivals) -> anyhow::Result<()> {
        let deadline = self.deadline;
        self.arrive(arrivals, deadline, Tally::is_over).await?;
        if !self.tally.is_over() {
            self.live.end_capture(self.tally.job().clone(), self.tally.order().number);
            // It goes out with the next sweep of the roads.
            self.arrive(arrivals, Instant::now() + FAREWELL, |_| false).await?;
        }
        Ok(())
    }

    async fn arrive(
        &mut self,
        arrivals: &mut Arrivals,
        deadline: Instant,
        enough: impl Fn(&Tally) -> bool,
    ) -> anyhow::Result<()> {
        let mut look = interval(LOOK_AGAIN);
        while !enough(&self.tally) {
            select! {
                arrival = arrivals.recv() => {
                    let arrival = arrival.context("the follower ended")?;
                    if let Arrival::Frame(frame) = &arrival {
                        self.tally.take(frame);
                        // Of a try that was given up nothing is kept.
                        if self.tally.keeps(frame) {
                            self.reel.take(frame)?;
                        }
                    }
                    self.following.take(arrival);
                }
                _ = look.tick() => {
                    let due = self.reel.packer.due(Moment::now());
                    due.and_then(|blocks| self.reel.write(blocks))?;
                    self.tally.look(self.following, Instant::now());
                    self.ask_stacks();
                    (self.tell)(News::Far(self.tally.progress()));
                    if self.stop.swap(false, Relaxed) {
                        self.deadline = Instant::now();
                        break;
                    }
                    if Instant::now() >= deadline {
                        break;
                    }
                }
            }
        }
        Ok(())
    }

    /// Of a job that stands they tell more than its operations.
    fn ask_stacks(&mut self) {
        if self.examined.elapsed() < EXAMINE {
            return;
        }
        self.examined = Instant::now();
        let Some(job) = self.following.jobs().get(self.tally.job()) else { return };
        let now = Moment::now();
        let ranks = self.inquiry.due(job, &finding::examine(job, now), now);
        if !ranks.is_empty() {
            self.live.kept_stacks(job.name().clone(), ranks);
        }
    }

    fn write_sheet(&mut self, closed: bool) -> anyhow::Result<()> {
        let body = Body::CaptureSheet(CaptureSheet {
            order: self.tally.order(),
            job: self.tally.job().clone(),
            ranks: self.tally.ranks().collect(),
            closed,
            missing: if closed { self.tally.missing() } else { Vec::new() },
        });
        let frame = Frame { host: HostName::default(), number: 0, now: Moment::now(), lost: 0, body };
        Ok(self.reel.take(&frame)?)
    }

    fn finish(mut self) -> anyhow::Result<Outcome> {
        self.tally.give_up();
        self.write_sheet(true)?;
        let (totals, _) = self.reel.close()?;
        Ok(Outcome {
            path: self.path,
            complaints: self.tally.complaints(),
            summary: self.tally.summary(),
            bytes: totals.bytes,
            whole: self.tally.whole(),
            ranks: self.tally.ranks().count(),
        })
    }
}

#[cfg(test)]
mod tests;
