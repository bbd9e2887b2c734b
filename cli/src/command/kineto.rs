//! `xpu-top kineto`: traces by PyTorch's own profiler of the same steps of all ranks, in a folder.
//!
//! First all ranks are asked for the state of their Kineto; then all get one order, early enough for each to
//! have polled; then their traces are fetched, part by part.

mod fetch;
mod manifest;
mod plan;
mod ranks;

use std::{
    collections::hash_map::RandomState,
    fs,
    hash::{BuildHasher as _, Hasher as _},
    path::Path,
    process::ExitCode,
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use anyhow::Context as _;
use fetch::Fetch;
use manifest::Manifest;
use plan::Plan;
use ranks::Ranks;
use tokio::{
    select,
    time::{Instant, interval, sleep},
};
use xpu_client::{
    arrival::{Arrival, Arrivals},
    capture::Stop,
    follow::Following,
    live::Live,
    new_file,
};
use xpu_model::status::ExitCode as Code;
use xpu_wire::{
    frame::{Body, KinetoOptions, KinetoOrder, KinetoWish},
    id::{HostName, JobName, Rank},
    unit::{Moment, Nanoseconds},
};

use super::{
    capture::{named_or_living, stop_on_signals},
    living::{LOOK, connect, nobody, take_until, tell_unreachable, the_job},
};
use crate::args::KinetoArgs;

/// A rank that was asked gave no trace.
const NOT_ALL: u8 = 1;

/// How long ranks may take to be heard of: Kineto asks every five seconds.
const HEARD: Duration = Duration::from_millis(6500);

/// How long it is looked how fast they step.
const PACE: Duration = Duration::from_secs(10);

/// How often what was asked is asked again.
const AGAIN: Duration = Duration::from_secs(1);

/// How often it is looked whether something is due.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// How long the last message to the collectors may take to leave.
const FAREWELL: Duration = Duration::from_millis(300);

/// Beyond what the steps take: for writing, which takes Kineto long, and for fetching.
const WRITING: Duration = Duration::from_mins(2);

pub fn kineto(args: &KinetoArgs) -> anyhow::Result<ExitCode> {
    new_file::check_absent([Manifest::path(&args.output)])?;
    let (mut following, live, mut arrivals) = connect(&args.of)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let stop = Stop::default();
    runtime.block_on(async {
        stop_on_signals(&stop)?;
        let complete = |following: &Following| following.is_complete();
        take_until(&mut following, &mut arrivals, Instant::now() + LOOK, complete).await;
        tell_unreachable(&following, ": its ranks are not traced");
        let Some(job) = the_job(&following, args.of.job.as_ref())? else {
            eprintln!("xpu-top: {}", nobody(args.of.job.as_ref()));
            return Ok(ExitCode::from(Code::NoData as u8));
        };
        let ranks = named_or_living(args.ranks.as_ref(), None, &following, &job)?;
        new_file::check_absent(ranks.iter().map(|&rank| fetch::path(&args.output, rank)))?;
        fs::create_dir_all(&args.output).with_context(|| format!("cannot make {}", args.output.display()))?;
        let tracing = Tracing {
            args,
            job,
            ranks: Ranks::new(&ranks),
            fetch: Fetch::new(&args.output),
            following,
            arrivals,
            live,
            stop,
            asked: None,
            said: String::new(),
        };
        tracing.take().await
    })
}

struct Tracing<'a> {
    args: &'a KinetoArgs,
    job: JobName,
    ranks: Ranks,
    fetch: Fetch,
    following: Following,
    arrivals: Arrivals,
    live: Live,
    stop: Stop,
    /// When they were asked last.
    asked: Option<Instant>,
    /// The line that was said last.
    said: String,
}

impl Tracing<'_> {
    async fn take(mut self) -> anyhow::Result<ExitCode> {
        self.ask_how_they_stand().await?;
        let Some(plan) = self.plan() else {
            eprintln!(
                "xpu-top: the step time is unknown, so no steps can be agreed on: use --duration 500ms"
            );
            return Ok(ExitCode::from(NOT_ALL));
        };
        let order = KinetoOrder {
            number: number(),
            window: plan.window,
            limit: Nanoseconds::from(self.limit(&plan)),
            options: options(self.args),
        };
        let (with, of) = (self.ranks.with_kineto(), self.ranks.len());
        eprintln!("xpu-top: {with} of {of} ranks will trace {plan}");
        self.trace(&order, plan.lead).await?;
        self.finish(&order, &plan).await
    }

    /// Until each has answered, and those whose Kineto has not asked for anything yet have had time to.
    async fn ask_how_they_stand(&mut self) -> anyhow::Result<()> {
        let begun = Instant::now();
        let by_steps = self.args.steps.is_some();
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

    fn plan(&self) -> Option<Plan> {
        let job = self.following.jobs().get(&self.job);
        let times = job.into_iter().flat_map(xpu_model::job::Job::ranks);
        let step_time =
            times.filter_map(|(_, view)| view.step_time()).min().or_else(|| self.ranks.step_time());
        Plan::of(self.args, &self.ranks, step_time, Moment::now())
    }

    fn limit(&self, plan: &Plan) -> Duration {
        self.args.wait.map_or_else(|| plan.takes() + WRITING, |wait| Duration::from_secs(wait.into()))
    }

    /// Gives the order, and fetches what comes of it.
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
            for (host, rank, part) in tracing.fetch.due(&tracing.ranks, now) {
                let wish = KinetoWish::Part { number: order.number, part };
                tracing.ask(Some(host), vec![rank], &wish);
            }
            tracing.say(&tracing.ranks.line(tracing.fetch.done()));
            tracing.ranks.are_all_settled() && tracing.fetch.has_all(&tracing.ranks)
        })
        .await
    }

    /// Takes what comes, until `step` says that it is enough, the deadline, or Ctrl-C.
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
                arrival = self.arrivals.recv() => self.hear(arrival.context("the follower ended")?)?,
                _ = look.tick() => {}
            }
        }
    }

    fn hear(&mut self, arrival: Arrival) -> anyhow::Result<()> {
        if let Arrival::Frame(frame) = &arrival {
            match &frame.body {
                Body::Kineto(rank) if rank.job == self.job => self.ranks.hear(&frame.host, rank),
                Body::KinetoPart(part) if part.job == self.job && self.ranks.expects(part.number) => {
                    return self.fetch.take(part);
                }
                _ => {}
            }
        }
        self.following.take(arrival);
        Ok(())
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
            eprintln!("xpu-top: {line}");
        }
    }

    async fn finish(mut self, order: &KinetoOrder, plan: &Plan) -> anyhow::Result<ExitCode> {
        self.fetch.give_up();
        self.ask(None, self.ranks.all(), &KinetoWish::End { number: order.number });
        sleep(FAREWELL).await;
        let manifest = Manifest::of(&self.job, order, plan, &self.ranks, &self.fetch);
        manifest.write(&self.args.output)?;
        for line in manifest.complaints() {
            eprintln!("xpu-top: {line}");
        }
        println!("{}", manifest.summary(&self.args.output));
        Ok(if manifest.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(NOT_ALL) })
    }
}

fn options(args: &KinetoArgs) -> KinetoOptions {
    KinetoOptions {
        record_shapes: args.record_shapes,
        profile_memory: args.profile_memory,
        with_stack: args.with_stack,
        with_flops: args.with_flops,
        with_modules: args.with_modules,
    }
}

/// Unique and unpredictable: file names contain it.
fn number() -> u64 {
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u64(Moment::now().0);
    hasher.write_u32(std::process::id());
    hasher.finish().max(1)
}

/// The folder as it was given.
fn shown(folder: &Path) -> std::path::Display<'_> {
    folder.display()
}
