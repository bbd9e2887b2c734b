//! Takes traces of the same steps of all ranks by PyTorch's own profiler, into a folder.
//!
//! First, all ranks are asked for the state of their Kineto. Then all get one order, early enough for each to
//! poll before the trace begins. Then their traces are fetched, part by part.

mod fetch;
mod manifest;
mod plan;
mod ranks;
mod screen;
mod traced;

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher as _, Hasher as _},
    path::{Path, PathBuf},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use anyhow::Context as _;
use fetch::Fetch;
use manifest::Manifest;
use plan::Plan;
use ranks::Ranks;
pub use screen::{Standing, Tracer};
use tokio::{
    select,
    time::{Instant, interval, sleep},
};
use xpu_wire::{
    frame::{Body, KinetoOptions, KinetoOrder, KinetoWindow, KinetoWish},
    id::{HostName, JobName, Rank},
    unit::{Moment, Nanoseconds},
};

use crate::{
    arrival::{Arrival, Arrivals},
    capture::Stop,
    follow::Following,
    live::Live,
};

/// How long ranks may take to report: Kineto polls every five seconds.
const HEARD: Duration = Duration::from_millis(6500);

/// How long the ranks' step rate is measured.
const PACE: Duration = Duration::from_secs(10);

/// Interval at which an unanswered question is repeated.
const AGAIN: Duration = Duration::from_secs(1);

/// Interval of checks whether something is due.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Time to send the last message to the collectors.
const FAREWELL: Duration = Duration::from_millis(300);

/// Time in addition to the steps: Kineto writes slowly, and the trace must be fetched.
const WRITING: Duration = Duration::from_mins(2);

/// The request to each rank: steps, or a period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    pub steps: Option<u32>,
    pub duration: Option<Duration>,
    /// Least time until the trace begins.
    pub start_in: Option<Duration>,
    /// Time limit. By default, the time of the trace and some minutes for writing.
    pub wait: Option<Duration>,
    pub options: KinetoOptions,
}

/// Called with messages while the traces are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The steps, or the period, of the traces.
    Planned(KinetoWindow),
    Line(String),
}

/// The result of taking traces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub folder: PathBuf,
    /// Ranks without a trace, and why.
    pub complaints: Vec<String>,
    /// `8 of 8 ranks gave a trace of steps 812 to 814: traces (18.4 MiB)`
    pub summary: String,
    /// Whether every rank gave a trace.
    pub is_whole: bool,
}

/// The files of the folder: the manifest, and the traces of these ranks.
pub fn files(folder: &Path, ranks: &[Rank]) -> Vec<PathBuf> {
    let traces = ranks.iter().map(|&rank| fetch::path(folder, rank));
    [Manifest::path(folder)].into_iter().chain(traces).collect()
}

/// A job that is followed, its ranks, and the connection to them.
#[derive(Debug)]
pub struct Subject {
    pub job: JobName,
    pub ranks: Vec<Rank>,
    pub following: Following,
    pub arrivals: Arrivals,
    pub live: Live,
}

/// Takes the traces of these ranks into a folder.
///
/// # Errors
/// Fails if the folder cannot be written.
pub async fn trace(
    folder: &Path,
    subject: Subject,
    wanted: Wanted,
    stop: Stop,
    report: &mut dyn FnMut(News),
) -> anyhow::Result<Outcome> {
    let Subject { job, ranks, following, arrivals, live } = subject;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let tracing = Tracing {
        folder,
        wanted,
        job,
        ranks: Ranks::new(&ranks),
        fetch: Fetch::new(folder),
        following,
        arrivals,
        live,
        stop,
        report,
        asked: None,
        said: String::new(),
    };
    tracing.take().await
}

struct Tracing<'a> {
    folder: &'a Path,
    wanted: Wanted,
    job: JobName,
    ranks: Ranks,
    fetch: Fetch,
    following: Following,
    arrivals: Arrivals,
    live: Live,
    stop: Stop,
    report: &'a mut dyn FnMut(News),
    /// When the ranks were last asked.
    asked: Option<Instant>,
    /// The last line shown.
    said: String,
}

impl Tracing<'_> {
    async fn take(mut self) -> anyhow::Result<Outcome> {
        self.await_states().await?;
        let plan = self.plan();
        let order = KinetoOrder {
            number: number(),
            window: plan.window,
            limit: Nanoseconds::from(self.limit(&plan)),
            options: self.wanted.options,
        };
        let (with, of) = (self.ranks.with_kineto(), self.ranks.len());
        (self.report)(News::Planned(plan.window));
        (self.report)(News::Line(if with == 0 {
            format!(
                "no Kineto of {of} ranks has polled yet; asking for another {:.0} s",
                plan.lead.as_secs_f64()
            )
        } else {
            format!("{with} of {of} ranks will trace {plan}")
        }));
        self.fetch.begin_for(&order);
        self.trace(&order, plan.lead).await?;
        self.finish(&order, &plan).await
    }

    /// Waits until each rank has answered, and each silent Kineto has had time to poll.
    async fn await_states(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let by_steps = self.wanted.steps.is_some();
        let (heard, pace) = (begun + HEARD, begun + PACE);
        self.run(pace, |tracing| {
            if tracing.is_due() {
                tracing.ask(None, tracing.ranks.all(), &KinetoWish::Tell);
            }
            let is_heard = tracing.ranks.are_all_registered() || Instant::now() >= heard;
            let nobody = tracing.ranks.with_kineto() == 0;
            is_heard && (nobody || !by_steps || tracing.ranks.is_pace_known())
        })
        .await
    }

    fn plan(&self) -> Plan {
        let job = self.following.jobs().get(&self.job);
        let times = job.into_iter().flat_map(xpu_model::job::Job::ranks);
        let step_time = times
            .filter_map(|(_, view)| view.step_time().max(view.latest_step_time()))
            .min()
            .or_else(|| self.ranks.step_time());
        Plan::of(&self.wanted, &self.ranks, step_time, Moment::now())
    }

    fn limit(&self, plan: &Plan) -> Duration {
        self.wanted.wait.unwrap_or_else(|| plan.takes() + WRITING)
    }

    /// Sends the order, and fetches the traces.
    async fn trace(&mut self, order: &KinetoOrder, lead: Duration) -> anyhow::Result<()> {
        let limit = Duration::from_nanos(order.limit.0);
        let deadline = Instant::now() + limit + Duration::from_secs(5);
        let unheard = Instant::now() + lead.max(HEARD);
        self.ranks.expect(order.number);
        self.asked = None;
        self.run(deadline, |tracing| {
            let now = Instant::now();
            if tracing.is_due() {
                tracing.ask(None, tracing.ranks.open(), &KinetoWish::Trace(order.clone()));
            }
            if now >= unheard {
                tracing.ranks.give_up_unheard();
            }
            for fetch::Due { host, rank, part } in tracing.fetch.due(&tracing.ranks, now) {
                let wish = KinetoWish::Part { number: order.number, part };
                tracing.ask(Some(host), vec![rank], &wish);
            }
            tracing.say(&tracing.ranks.line(tracing.fetch.done()));
            tracing.ranks.are_all_settled() && tracing.fetch.has_all(&tracing.ranks)
        })
        .await
    }

    /// Takes arrivals until `step` returns stop, the deadline passes, or Ctrl-C is pressed.
    async fn run(
        &mut self,
        deadline: Instant,
        mut step: impl FnMut(&mut Self) -> bool,
    ) -> anyhow::Result<()> {
        let mut look = interval(LOOK_AGAIN);
        loop {
            if step(self) || Instant::now() >= deadline || self.stop.load(Relaxed) {
                return Ok(());
            }
            select! {
                arrival = self.arrivals.recv() => self.hear(arrival.context("the connection to the collectors ended")?),
                _ = look.tick() => {}
            }
        }
    }

    fn hear(&mut self, arrival: Arrival) {
        if let Arrival::Frame(frame) = &arrival {
            match &frame.body {
                Body::Kineto(rank) if rank.job == self.job => self.ranks.hear(&frame.host, rank),
                Body::KinetoPart(part) if part.job == self.job && self.ranks.expects(part.number) => {
                    self.fetch.take(part);
                    return;
                }
                _ => {}
            }
        }
        self.following.take(arrival);
    }

    fn is_due(&mut self) -> bool {
        let is_due = self.asked.is_none_or(|asked| asked.elapsed() >= AGAIN);
        if is_due {
            self.asked = Some(Instant::now());
        }
        is_due
    }

    fn ask(&self, host: Option<HostName>, ranks: Vec<Rank>, wish: &KinetoWish) {
        if !ranks.is_empty() {
            self.live.kineto(self.job.clone(), ranks, host, wish.clone());
        }
    }

    fn say(&mut self, line: &str) {
        if self.said != line {
            line.clone_into(&mut self.said);
            (self.report)(News::Line(line.to_owned()));
        }
    }

    async fn finish(mut self, order: &KinetoOrder, plan: &Plan) -> anyhow::Result<Outcome> {
        self.fetch.give_up();
        self.ask(None, self.ranks.all(), &KinetoWish::End { number: order.number });
        sleep(FAREWELL).await;
        let manifest = Manifest::of(&self.job, order, plan, &self.ranks, &self.fetch);
        manifest.write(self.folder)?;
        Ok(Outcome {
            folder: self.folder.to_owned(),
            complaints: manifest.complaints(),
            summary: manifest.summary(self.folder),
            is_whole: manifest.is_whole(),
        })
    }
}

/// Unique and unpredictable: file names contain it.
fn number() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(Moment::now().0);
    hasher.write_u32(std::process::id());
    hasher.finish().max(1)
}
