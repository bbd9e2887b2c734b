//! `xpu-top stacks`: the merged stacks of all ranks.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, IsTerminal as _, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use xpu_analysis::flame;
use xpu_client::{
    arrival::{Arrival, Arrivals},
    follow::Following,
    live::Live,
    new_file,
};
use xpu_model::{
    job::Job,
    stack::{self, Tree},
    status::{ExitCode as Code, UnreachableHost},
};
use xpu_wire::{
    frame::{Body, Life, RankStacks, ThreadStack},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use super::{
    living::{
        Connection, LOOK, connect, ended_job, report_kept, report_no_job, report_unreachable, selected,
        take_until, the_job,
    },
    output::{print, print_json},
    past,
};
use crate::args::{StacksArgs, UsageError};

/// Interval of requests while a rank has not answered, because one may have been lost. Longer than reading a
/// rank without its GPUs may take.
const ASK_AGAIN: Duration = Duration::from_secs(6);

/// Time limit for all answers, without and with GPUs, in seconds.
const WAIT: u32 = 15;
const WAIT_FOR_GPUS: u32 = 70;

pub fn stacks(args: &StacksArgs) -> anyhow::Result<ExitCode> {
    new_file::check([&args.form.svg, &args.form.folded].into_iter().flatten())?;
    if let Some(path) = &args.replay {
        return recorded(path, args);
    }
    let Connection { mut following, live, mut arrivals } = connect(&args.of)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    // A filter needs figures, which come with the first digest of each rank.
    let answered = |following: &Following| match args.filter {
        Some(_) => following.is_complete(),
        None => following.has_answered(),
    };
    runtime.block_on(take_until(&mut following, &mut arrivals, Instant::now() + LOOK, answered));
    let living = the_job(&following, args.of.job.as_ref())?;
    // Collectors keep the stacks of a job that hung and has ended.
    let kept = living.is_none();
    let ended = || ended_job(&following, args.of.job.as_ref()).filter(|_| !args.gpus);
    let Some(job) = living.or_else(ended) else {
        report_unreachable(&following, ": its ranks are not shown");
        report_no_job(args.of.job.as_ref());
        report_kept("stacks", args.of.job.as_ref());
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    let ranks = match &args.filter {
        Some(filter) => selected(filter, &following, Moment::now(), &job, |_| true)?,
        None => args.rank.clone(),
    };
    let depth = if kept { Depth::Kept } else { Depth::of(args) };
    let mut gathered = Gathered::new(job, ranks, depth);
    let wait = args.wait.unwrap_or(if args.gpus { WAIT_FOR_GPUS } else { WAIT });
    if args.gpus && !args.yes && !is_agreed(gathered.missing(&following).len())? {
        return Ok(ExitCode::from(Code::Usage as u8));
    }
    runtime.block_on(gathered.gather(&mut following, &mut arrivals, &live, wait));
    report_unreachable(&following, ": its ranks are not shown");
    let document = gathered.document(&following);
    if kept && document.is_empty() {
        eprintln!("xpu-top: job {} has ended, and its collectors have no stacks of it", document.job);
        report_kept("stacks", Some(&document.job));
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    output(&document, args)
}

/// The stacks in a recording: those of a job that hung, and those that were requested during the recording.
fn recorded(path: &Path, args: &StacksArgs) -> anyhow::Result<ExitCode> {
    let (following, at) = past::followed(path, args.at.as_deref(), args.of.job.as_ref(), None)?;
    let Some(job) = following.job() else {
        eprintln!("xpu-top: {}: it has no job at that time", path.display());
        return Ok(ExitCode::from(Code::NoData as u8));
    };
    let ranks = match &args.filter {
        Some(filter) => selected(filter, &following, at, job.name(), |_| true)?,
        None => args.rank.clone(),
    };
    let mut gathered = Gathered::new(job.name().clone(), ranks, Depth::of(args));
    for stacks in job.stacks() {
        if !gathered.wants(stacks.rank) {
            continue;
        }
        let host = job.rank(stacks.rank).map(|view| view.host().clone()).unwrap_or_default();
        gathered.came.insert(stacks.rank, (host, stacks.clone()));
    }
    if gathered.came.is_empty() {
        eprintln!(
            "xpu-top: {}: it has no stacks at that time: stacks and records are read when a job hangs",
            path.display()
        );
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    output(&gathered.document(&following), args)
}

fn output(document: &Document, args: &StacksArgs) -> anyhow::Result<ExitCode> {
    for line in document.notes() {
        eprintln!("xpu-top: {line}");
    }
    if document.is_empty() {
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    put(document, args)?;
    let has_kernels =
        || document.ranks.iter().any(|rank| rank.stacks.threads.iter().any(ThreadStack::is_gpu));
    Ok(if args.gpus && !has_kernels() { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// The kind of stacks to read from each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Python,
    Native,
    /// Kernels on the GPUs, and native frames.
    Gpus,
    /// Those that collectors have read before the job ended.
    Kept,
}

impl Depth {
    fn of(args: &StacksArgs) -> Self {
        match (args.gpus, args.native) {
            (true, _) => Self::Gpus,
            (false, true) => Self::Native,
            (false, false) => Self::Python,
        }
    }
}

/// Asks whether ranks may be ended; without a terminal they may not.
fn is_agreed(ranks: usize) -> anyhow::Result<bool> {
    if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
        let text = "reading the GPUs ends the ranks; confirm with --yes";
        return Err(UsageError::Value(text.to_owned()).into());
    }
    eprint!(
        "xpu-top: reading the GPUs of {ranks} ranks ends them: CUDA's driver stops what runs there. Continue? [y/N] "
    );
    let mut answer = String::new();
    io::stdin().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// The answers of the requested ranks.
struct Gathered {
    job: JobName,
    depth: Depth,
    /// The named ranks; an empty list means all.
    named: Vec<Rank>,
    came: BTreeMap<Rank, (HostName, RankStacks)>,
}

impl Gathered {
    fn new(job: JobName, named: Vec<Rank>, depth: Depth) -> Self {
        Self { job, named, depth, came: BTreeMap::new() }
    }

    fn wants(&self, rank: Rank) -> bool {
        self.named.is_empty() || self.named.iter().any(|named| named.process() == rank.process())
    }

    /// Ranks that should answer, one per process. A rank that ended in an orderly way has no stack.
    fn expected(&self, job: Option<&Job>) -> BTreeSet<Rank> {
        let known = job.into_iter().flat_map(Job::processes).filter(|(_, view)| view.life() != Life::Ended);
        known.map(|(rank, _)| rank).filter(|&rank| self.wants(rank)).collect()
    }

    fn missing(&self, following: &Following) -> Vec<Rank> {
        let expected = self.expected(following.jobs().get(&self.job));
        expected.into_iter().filter(|rank| !self.came.contains_key(rank)).collect()
    }

    fn take(&mut self, arrival: &Arrival) {
        if let Arrival::Frame(frame) = arrival
            && let Body::Stacks(stacks) = &frame.body
            && stacks.job == self.job
            && self.wants(stacks.rank)
            && !self.came.get(&stacks.rank).is_some_and(|(_, before)| stacks.lacks_gpus_of(before))
        {
            self.came.insert(stacks.rank, (frame.host.clone(), stacks.clone()));
        }
    }

    /// Asks until every rank has answered, or the time is up.
    async fn gather(
        &mut self,
        following: &mut Following,
        arrivals: &mut Arrivals,
        live: &Live,
        seconds: u32,
    ) {
        let deadline = Instant::now() + Duration::from_secs(seconds.into());
        while Instant::now() < deadline {
            let missing = self.missing(following);
            if missing.is_empty() {
                return;
            }
            match self.depth {
                Depth::Gpus => live.gpu_stacks(self.job.clone(), missing),
                Depth::Kept => live.kept_stacks(self.job.clone(), missing),
                depth => live.stacks(self.job.clone(), missing, depth == Depth::Native),
            }
            let pause = deadline.min(Instant::now() + ASK_AGAIN);
            while !self.missing(following).is_empty() {
                match timeout_at(pause, arrivals.recv()).await {
                    Ok(Some(arrival)) => {
                        self.take(&arrival);
                        following.take(arrival);
                    }
                    Ok(None) => return,
                    Err(_late) => break,
                }
            }
        }
    }

    fn document(self, following: &Following) -> Document {
        let silent = self.missing(following);
        let unknown =
            self.named.iter().copied().filter(|rank| !self.came.contains_key(rank) && !silent.contains(rank));
        let no_answer = silent.iter().copied().chain(unknown).collect::<Vec<_>>();
        let (hosts, stacks): (Vec<_>, Vec<_>) = self.came.into_values().unzip();
        let tree = stack::merge(no_answer.iter().copied(), &stacks);
        let ranks = hosts.into_iter().zip(stacks).map(|(host, stacks)| OneRank { host, stacks }).collect();
        Document {
            job: self.job,
            tree,
            ranks,
            no_answer,
            hosts_unreachable: following.unreachable().collect(),
        }
    }
}

/// `xpu-top stacks --json`
#[derive(Debug, Serialize)]
struct Document {
    job: JobName,
    tree: Tree,
    ranks: Vec<OneRank>,
    no_answer: Vec<Rank>,
    hosts_unreachable: Vec<UnreachableHost>,
}

impl Document {
    fn is_empty(&self) -> bool {
        self.ranks.iter().all(|rank| rank.stacks.threads.is_empty())
    }
}

#[derive(Debug, Serialize)]
struct OneRank {
    host: HostName,
    #[serde(flatten)]
    stacks: RankStacks,
}

impl Document {
    fn notes(&self) -> Vec<String> {
        stack::notes(self.ranks.iter().map(|rank| &rank.stacks), self.no_answer.iter().copied())
    }
}

fn put(document: &Document, args: &StacksArgs) -> anyhow::Result<()> {
    let form = &args.form;
    if let Some(path) = &form.svg {
        write_to(path, &flame::svg(&document.tree, &document.job)?)?;
    }
    if let Some(path) = &form.folded {
        write_to(path, stack::folded(&document.tree).as_bytes())?;
    }
    if form.json {
        print_json(document)
    } else if form.text || (form.svg.is_none() && form.folded.is_none()) {
        print(&stack::text(&document.tree))
    } else {
        Ok(())
    }
}

pub(super) fn write_to(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    if path == Path::new("-") {
        return Ok(io::stdout().write_all(bytes)?);
    }
    new_file::write(path, |out| Ok(out.write_all(bytes)?))
}
