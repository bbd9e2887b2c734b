//! `xpu-top capture`: every operation of a few steps of all ranks, in a file.
//!
//! The ranks are told a step that is still to come. Each says whether it can record from there; nobody waits for anybody. If one is
//! past it already all are told a later one, once.

mod progress;
mod tally;

use std::{process::ExitCode, time::Duration};

use anyhow::Context as _;
use tokio::{
    select,
    signal::unix::{SignalKind, signal},
    time::{Instant, interval},
};
use xpu_shared::{
    frame::{Body, CaptureOrder, CaptureSheet, Frame},
    id::{HostName, Rank, Step},
    job::{Job, RankView},
    recording::Writer,
    status::ExitCode as Code,
    unit::{Moment, Nanoseconds},
};

use super::{
    living::{LOOK, nobody, take_until, tell_unreachable, the_job},
    record::{Reel, fresh, header},
};
use crate::{
    args::{CaptureArgs, UsageError},
    arrival::{Arrival, Arrivals},
    figure,
    follow::Following,
    live::{self, Live},
};
use progress::Progress;
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

/// A rank is missing.
const NOT_ALL: u8 = 1;

pub fn capture(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    let hosts = args.of.hosts()?;
    let key = args.of.way.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let header = header(&args.of, &hosts);
    let mut following = Following::new(hosts.endpoints.iter().cloned(), args.of.job.clone());
    let (live, mut arrivals) = live::connect(hosts.endpoints, key, args.of.job.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let until = |following: &Following| following.is_complete();
    runtime.block_on(take_until(&mut following, &mut arrivals, Instant::now() + LOOK, until));
    let Some(job) = the_job(&following, args.of.job.as_ref())? else {
        tell_unreachable(&following, ": its ranks are not captured");
        eprintln!("xpu-top: {}", nobody(args.of.job.as_ref()));
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    tell_unreachable(&following, ": its ranks are not captured");
    let ranks = wanted(args, following.jobs().get(&job))?;
    let failed = || format!("cannot write {}", args.output.display());
    let writer = Writer::begin(fresh(&args.output)?, &header).with_context(failed)?;
    let mut taking = Taking {
        reel: Reel::new(writer),
        tally: Tally::new(job, ranks),
        following,
        live,
        deadline: Instant::now() + Duration::from_secs(args.wait.into()),
        progress: Progress::default(),
    };
    runtime.block_on(taking.take(&mut arrivals, args)).with_context(failed)?;
    taking.finish(&args.output).with_context(failed)
}

/// The ranks that are asked: those that were named, or all that live.
fn wanted(args: &CaptureArgs, job: Option<&Job>) -> Result<Vec<Rank>, UsageError> {
    let living: Vec<_> = job
        .into_iter()
        .flat_map(Job::ranks)
        .filter(|(_, view)| view.is_alive())
        .map(|(rank, _)| rank)
        .collect();
    let Some(named) = &args.ranks else { return Ok(living) };
    let strangers: Vec<_> =
        named.0.iter().filter(|rank| !living.contains(rank)).take(8).map(ToString::to_string).collect();
    if strangers.is_empty() {
        return Ok(named.0.clone());
    }
    Err(UsageError::Value(format!(
        "--ranks: no rank {} lives in this job; `xpu-top status` lists those that do",
        strangers.join(", ")
    )))
}

/// A capture under way.
struct Taking {
    reel: Reel,
    tally: Tally,
    following: Following,
    live: Live,
    deadline: Instant,
    progress: Progress,
}

impl Taking {
    async fn take(&mut self, arrivals: &mut Arrivals, args: &CaptureArgs) -> anyhow::Result<()> {
        for news in [NEWS, FRESH_NEWS] {
            let Some(first) = self.first_step(news) else {
                self.tally.refuse_all("it has not completed a step yet; try again when it trains");
                return Ok(());
            };
            let left = self.deadline.saturating_duration_since(Instant::now());
            let limit = Nanoseconds::from(left.saturating_sub(SENDING).max(left / 2));
            let now = Moment::now();
            // Nobody else chooses the same one.
            let number = now.0 ^ u64::from(std::process::id()).rotate_left(40);
            self.tally.begin(CaptureOrder {
                number,
                first,
                steps: args.steps,
                limit,
                before: 0,
                activity: !args.light,
                functions: !args.light,
            });
            self.write_sheet(false)?;
            self.agree(arrivals).await?;
            if !self.tally.is_any_late() {
                break;
            }
            self.live.end_capture(self.tally.job().clone(), number);
            self.progress.say("a rank is past that step already: all are told a later one");
        }
        self.collect(arrivals).await
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
        let (mut interrupt, mut terminate) =
            (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
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
                    self.tally.look(&self.following, Instant::now());
                    self.progress.tell(&self.tally);
                    if Instant::now() >= deadline {
                        break;
                    }
                }
                _ = interrupt.recv() => { self.deadline = Instant::now(); break }
                _ = terminate.recv() => { self.deadline = Instant::now(); break }
            }
        }
        Ok(())
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

    fn finish(mut self, path: &std::path::Path) -> anyhow::Result<ExitCode> {
        self.tally.give_up();
        self.write_sheet(true)?;
        let (totals, _) = self.reel.close()?;
        self.progress.end();
        for line in self.tally.complaints() {
            eprintln!("xpu-top: {line}");
        }
        println!("{}: {}; {}", path.display(), self.tally.summary(), figure::bytes(totals.bytes));
        Ok(ExitCode::from(match self.tally.whole() {
            0 => Code::NoData as u8,
            whole if whole < self.tally.ranks().count() => NOT_ALL,
            _ => 0,
        }))
    }
}
