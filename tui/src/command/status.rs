//! `xpu-top status`: watches for as long as it takes to tell who is slow, and prints what it saw.

use std::{
    fmt,
    io::{self, Write as _},
    path::Path,
    process::ExitCode,
    time::Duration,
};

use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use xpu_shared::{
    finding::{self, Finding, Kind},
    id::Rank,
    status::Status,
    unit::Moment,
};

use super::{
    living::{take_stacks, tell_unreachable},
    table,
};
use crate::{
    args::{JobArgs, StatusArgs, UsageError},
    arrival::{Arrival, Arrivals},
    filter::Filter,
    follow::Following,
    live::{self, Live},
    replay::{Tape, time},
};

/// How long to wait for hosts and ranks unless told otherwise.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long to watch at most: ranks that say too little to be judged are not waited for.
const WATCH: Duration = Duration::from_secs(18);

/// Ranks that a command is written out for; of more, all are shown.
const NAMED: usize = 4;

pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    if let Some(path) = &args.replay {
        return recorded(path, args);
    }
    let hosts = args.of.hosts()?;
    let key = args.of.way.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let mut following = Following::new(hosts.endpoints.iter().cloned(), args.of.job.clone());
    let (live, mut arrivals) = live::connect(hosts.endpoints, key, args.of.job.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(look(&mut following, &mut arrivals, &live, args));
    if !args.now {
        runtime.block_on(watch(&mut following, &mut arrivals));
    }
    if stands(&following) {
        runtime.block_on(take_stacks(&mut following, &mut arrivals, &live, PATIENCE));
    }
    tell_unreachable(&following, "");
    let now = Moment::now();
    let status = following.status(now);
    print(&status, args.filter.as_ref(), args.json)?;
    if !args.json && status.findings.iter().any(Finding::stops_the_job) {
        put(&next(&status, &args.of))?;
    }
    Ok(ExitCode::from(status.exit_code() as u8))
}

/// The command that shows where the ranks are that a job stands for.
fn next(status: &Status, of: &JobArgs) -> String {
    let standstill = status.findings.iter().find(|finding| finding.stops_the_job());
    // Who is gone has no stack: where the others are says what they wait for.
    let ranks = standstill.filter(|finding| finding.kind == Kind::Hang).map(|finding| &finding.ranks[..]);
    let ranks = ranks.filter(|ranks| ranks.len() <= NAMED).unwrap_or_default();
    let mut words = vec!["xpu-top stacks".to_owned()];
    words.extend(ranks.iter().map(|rank| format!("--rank {rank}")));
    format!("next: {}{}\n", words.join(" "), of.line())
}

/// The same of a recording.
fn recorded(path: &Path, args: &StatusArgs) -> anyhow::Result<ExitCode> {
    // Neither health nor its lack: as with a file that was never named.
    let mut tape = Tape::open_file(path).map_err(|error| UsageError::Value(format!("{error:#}")))?;
    let at = match &args.at {
        Some(text) => time::moment_within(text, tape.span()).map_err(UsageError::Value)?,
        None => tape.span().1,
    };
    tape.watch_ranks(args.rank.map(Rank).into_iter().collect());
    let mut following = Following::new([], args.of.job.clone());
    while let Some((came, frame)) = tape.next(at)? {
        following.take_at(came, Arrival::Frame(Box::new(frame)));
    }
    tape.complaints().iter().for_each(|complaint| eprintln!("xpu-top: {}: {complaint}", path.display()));
    let status = following.status(at);
    print(&status, args.filter.as_ref(), args.json)?;
    Ok(ExitCode::from(status.exit_code() as u8))
}

/// Until enough was seen: everybody who can be reached, or with `wait` everybody who was named.
async fn look(following: &mut Following, arrivals: &mut Arrivals, live: &Live, args: &StatusArgs) {
    let patience = args.wait.map_or(PATIENCE, |seconds| Duration::from_secs(seconds.into()));
    let deadline = Instant::now() + patience;
    let mut rank = args.rank.map(Rank);
    loop {
        let job = following.job().map(|job| job.name().clone());
        if let (Some(wanted), Some(job)) = (rank, job) {
            live.watch_ranks(Some((job, [wanted].into())));
            rank = None;
        }
        let enough = match args.wait {
            Some(_) => following.is_whole(),
            None => following.is_complete(),
        };
        let detailed = args.rank.is_none_or(|rank| following.has_detail(Rank(rank)));
        if enough && (detailed || following.job().is_none()) {
            return;
        }
        match timeout_at(deadline, arrivals.recv()).await {
            Ok(Some(arrival)) => following.take(arrival),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Until it would be known if a rank were slow; of a job that stands, or of none, no more will be.
async fn watch(following: &mut Following, arrivals: &mut Arrivals) {
    let deadline = Instant::now() + WATCH;
    while following.job().is_some_and(|job| job.living() > 0) && !following.is_watched() && !stands(following)
    {
        match timeout_at(deadline, arrivals.recv()).await {
            Ok(Some(arrival)) => following.take(arrival),
            Ok(None) | Err(_) => return,
        }
    }
}

fn stands(following: &Following) -> bool {
    let findings = following.job().map(|job| finding::examine(job, Moment::now())).unwrap_or_default();
    findings.iter().any(Finding::stops_the_job)
}

/// With a filter only the ranks that are so are listed; what is wrong, and the exit code, are the whole job's.
pub(super) fn print(status: &Status, filter: Option<&Filter>, json: bool) -> anyhow::Result<()> {
    let sifted = filter.map(|filter| {
        let (ranks, unknown) = filter.among(&status.ranks, &status.job);
        (ranks, FilterStatus { text: filter.text(), ranks: status.ranks.len(), unknown })
    });
    if !json {
        return put(&table::of(status, sifted.map(|(ranks, of)| (ranks, of.to_string()))));
    }
    let Some((ranks, filter)) = sifted else { return put(&(serde_json::to_string_pretty(status)? + "\n")) };
    let ranks = ranks.into_iter().cloned().collect();
    let document = Document { status: &Status { ranks, ..status.clone() }, filter };
    put(&(serde_json::to_string_pretty(&document)? + "\n"))
}

/// A status of which not all ranks are listed.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    status: &'a Status,
    filter: FilterStatus<'a>,
}

#[derive(Serialize)]
struct FilterStatus<'a> {
    text: &'a str,
    /// Ranks there are, whether they are listed or not.
    ranks: usize,
    /// Of these, those of which a figure is not known that the filter asks for.
    unknown: usize,
}

impl fmt::Display for FilterStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} ranks are listed: {}", self.ranks, self.text)?;
        match self.unknown {
            0 => Ok(()),
            1 => f.write_str("; 1 has no figure for that"),
            unknown => write!(f, "; {unknown} have no figure for that"),
        }
    }
}

fn put(text: &str) -> anyhow::Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
