//! `xpu-top status`: watches until a straggler would be detected, and prints the result.

mod text;

use std::{fmt, path::Path, process::ExitCode, time::Duration};

use serde::Serialize;
use tokio::time::{Instant, timeout_at};
use xpu_client::{
    arrival::Arrivals,
    filter::Filter,
    follow::Following,
    kept,
    live::{self, Live, WatchedRanks},
};
use xpu_model::{
    finding::{self, Finding, Kind, Price},
    job::Job,
    status::{RankState, Status},
};
use xpu_wire::{id::Rank, unit::Moment};

use super::{
    living::{report_unreachable, take_records, take_stacks},
    output, past,
};
use crate::args::{JobArgs, PastRun, StatusArgs, quoted};

/// Default time to wait for hosts and ranks.
const PATIENCE: Duration = Duration::from_secs(5);

/// Longest time of watching, even if some ranks have reported too little.
const WATCH: Duration = Duration::from_secs(18);

/// Largest number of ranks that are written into a suggested command; if there are more, the command shows
/// all.
const NAMED: usize = 4;

/// The note on an incident folder whose ranks do not show the cause.
const NOT_SHOWN: &str = "the folder was written because the job hung or a rank failed; its ranks do not show the cause: copy the folders of the job's other hosts into the same directory";

pub fn status(args: &StatusArgs) -> anyhow::Result<ExitCode> {
    let price = args.priced.price()?;
    if let Some(path) = &args.replay {
        return recorded(path, args, price);
    }
    let runs = args.baseline.as_ref().map(PastRun::runs).transpose()?;
    let hosts = args.of.hosts()?;
    let key = args.of.connection.key()?;
    hosts.warnings.iter().for_each(|warning| eprintln!("xpu-top: {warning}"));
    let mut following = Following::new(hosts.endpoints.iter().cloned(), args.of.job.clone());
    following.note_what_goes();
    following.compare_with(runs);
    let (live, mut arrivals) = live::connect(hosts.endpoints, key, args.of.job.clone());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    runtime.block_on(look(&mut following, &mut arrivals, &live, args));
    if !args.now {
        runtime.block_on(watch(&mut following, &mut arrivals));
    }
    if is_stuck(&following) || following.job().is_some_and(finding::may_hang) {
        runtime.block_on(take_records(&mut following, &mut arrivals, &live, PATIENCE));
        runtime.block_on(take_stacks(&mut following, &mut arrivals, &live, PATIENCE));
    }
    report_unreachable(&following, "");
    report_no_past_run(&following);
    let now = Moment::now();
    let mut status = following.status(now);
    status.price(price);
    print(&status, args.filter.as_ref(), args.json)?;
    if !args.json {
        let commands = next(&status, following.job(), &args.of);
        print_commands(&if commands.is_empty() { next_of_kept(&status, args) } else { commands })?;
    }
    Ok(ExitCode::from(status.exit_code() as u8))
}

fn report_no_past_run(following: &Following) {
    following.lacks_past_run().iter().for_each(|why| eprintln!("xpu-top: --baseline: {why}"));
}

fn print_commands(commands: &[String]) -> anyhow::Result<()> {
    commands.iter().try_for_each(|command| output::print(&format!("next: {command}\n")))
}

/// The commands that show where the ranks are for which the job waits, and the last calls of all ranks.
fn next(status: &Status, job: Option<&Job>, of: &JobArgs) -> Vec<String> {
    let Some(stall) = status.findings.iter().find(|finding| finding.stops_the_job()) else {
        return Vec::new();
    };
    // A rank that is gone has no stack; the positions of the others show what they wait for.
    if status.ranks.iter().all(|rank| rank.state == RankState::Exited) {
        return Vec::new();
    }
    // A rank that ended in an orderly way, and for which the others wait, has no stack either.
    let has_stack =
        |named: &Rank| status.ranks.iter().any(|one| one.rank == *named && one.state != RankState::Exited);
    let named = stall.kind == Kind::Hang && stall.ranks.len() <= NAMED && stall.ranks.iter().all(has_stack);
    let ranks = if named { &stall.ranks[..] } else { &[] };
    let mut job_words = Vec::new();
    if of.job.is_none() && !status.other_jobs.is_empty() {
        job_words.push(format!("--job {}", quoted(status.job.as_str())));
    }
    let mut words = vec!["xpu-top stacks".to_owned()];
    words.extend(ranks.iter().map(|rank| format!("--rank {rank}")));
    let mut commands = vec![words];
    if job.is_some_and(has_calls) {
        commands.push(vec!["xpu-top collectives".to_owned()]);
    }
    let line = of.line();
    commands.into_iter().map(|words| [&words[..], &job_words[..]].concat().join(" ") + &line).collect()
}

fn has_stacks(job: &Job) -> bool {
    job.stacks().any(|stacks| !stacks.threads.is_empty())
}

fn has_calls(job: &Job) -> bool {
    job.records().any(|record| !record.calls.is_empty())
}

/// The commands that read a recording, as far as it has something to show.
fn next_of_recording(job: &Job, options: &str) -> Vec<String> {
    let commands = [("stacks", has_stacks(job)), ("collectives", has_calls(job))];
    let useful = commands.into_iter().filter(|&(_, has_some)| has_some);
    useful.map(|(command, _)| format!("xpu-top {command} {options}")).collect()
}

/// The commands that read the newest incident folder of this machine, if no rank is left to ask.
fn next_of_kept(status: &Status, args: &StatusArgs) -> Vec<String> {
    if status.ranks.iter().any(|rank| rank.state != RankState::Exited) {
        return Vec::new();
    }
    let named = if status.ranks.is_empty() { args.of.job.as_ref() } else { Some(&status.job) };
    let Some(folder) = kept::newest(named) else { return Vec::new() };
    let replay = format!("--replay {}", quoted(&folder.to_string_lossy()));
    if status.ranks.is_empty() {
        return vec![format!("xpu-top status {replay}")];
    }
    let followed = past::followed(&folder, None, None, None).ok();
    let job = followed.as_ref().and_then(|(following, _)| following.job());
    job.map_or_else(Vec::new, |job| next_of_recording(job, &replay))
}

/// The status of a recording.
fn recorded(path: &Path, args: &StatusArgs, price: Option<Price>) -> anyhow::Result<ExitCode> {
    let rank = args.rank;
    let runs = args.baseline.as_ref().map(PastRun::runs).transpose()?;
    let (mut following, at) = past::followed(path, args.at.as_deref(), args.of.job.as_ref(), rank)?;
    following.compare_with(runs);
    report_no_past_run(&following);
    let mut status = following.status(at);
    status.price(price);
    print(&status, args.filter.as_ref(), args.json)?;
    let is_stuck = status.findings.iter().any(Finding::stops_the_job);
    let lacks_ranks = following.job().is_none_or(|job| !job.is_whole());
    let shows_cause =
        |finding: &Finding| finding.stops_the_job() && finding.class != finding::Class::Elsewhere;
    if path.is_dir() && args.at.is_none() && lacks_ranks && !status.findings.iter().any(shows_cause) {
        eprintln!("xpu-top: {NOT_SHOWN}");
    }
    if let Some(job) = following.job().filter(|_| is_stuck && !args.json) {
        let path = quoted(&path.to_string_lossy());
        let at = args.at.as_ref().map_or_else(String::new, |at| format!(" --at {}", quoted(at)));
        let name = if status.other_jobs.is_empty() {
            String::new()
        } else {
            format!(" --job {}", quoted(job.name().as_str()))
        };
        print_commands(&next_of_recording(job, &format!("--replay {path}{at}{name}")))?;
    }
    Ok(ExitCode::from(status.exit_code() as u8))
}

/// Waits until all reachable hosts have reported, or with `wait` all given hosts.
async fn look(following: &mut Following, arrivals: &mut Arrivals, live: &Live, args: &StatusArgs) {
    let patience = args.wait.map_or(PATIENCE, |seconds| Duration::from_secs(seconds.into()));
    let deadline = Instant::now() + patience;
    let mut rank = args.rank;
    loop {
        let job = following.job().map(|job| job.name().clone());
        if let (Some(wanted), Some(job)) = (rank, job) {
            live.watch_ranks(Some(WatchedRanks { job, ranks: [wanted].into() }));
            rank = None;
        }
        let enough = match args.wait {
            Some(_) => following.is_whole(),
            None => following.is_complete(),
        };
        let detailed = args.rank.is_none_or(|rank| following.has_detail(rank));
        if enough && (detailed || following.job().is_none()) {
            return;
        }
        match timeout_at(deadline, arrivals.recv()).await {
            Ok(Some(arrival)) => following.take(arrival),
            Ok(None) | Err(_) => return,
        }
    }
}

/// Watches until a slow rank would be known. A job that hangs, or the absence of a job, needs no watching.
async fn watch(following: &mut Following, arrivals: &mut Arrivals) {
    let deadline = Instant::now() + WATCH;
    while following.job().is_some_and(|job| job.living() > 0)
        && !following.is_watched()
        && !is_stuck(following)
    {
        match timeout_at(deadline, arrivals.recv()).await {
            Ok(Some(arrival)) => following.take(arrival),
            Ok(None) | Err(_) => return,
        }
    }
}

fn is_stuck(following: &Following) -> bool {
    let findings = following.job().map(|job| finding::examine(job, Moment::now())).unwrap_or_default();
    findings.iter().any(Finding::stops_the_job)
}

/// With a filter only matching ranks are listed; findings and exit code are those of the whole job.
pub(super) fn print(status: &Status, filter: Option<&Filter>, json: bool) -> anyhow::Result<()> {
    let filtered = filter.map(|filter| {
        let (ranks, unknown) = filter.among(&status.ranks, &status.job);
        (ranks, FilterStatus { text: filter.text(), ranks: status.ranks.len(), unknown })
    });
    if !json {
        return output::print(&text::of(
            status,
            filtered.map(|(ranks, of)| (ranks, of.to_string())),
            output::width(),
        ));
    }
    let Some((ranks, filter)) = filtered else {
        return output::print_json(status);
    };
    let ranks = ranks.into_iter().cloned().collect();
    let document = Document { status: &Status { ranks, ..status.clone() }, filter };
    output::print_json(&document)
}

/// A status that lists only some ranks.
#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    status: &'a Status,
    filter: FilterStatus<'a>,
}

#[derive(Serialize)]
struct FilterStatus<'a> {
    text: &'a str,
    /// The number of ranks, listed or not.
    ranks: usize,
    /// The number of ranks without a figure that the filter needs.
    unknown: usize,
}

impl fmt::Display for FilterStatus<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "of {} ranks are listed: {}", self.ranks, self.text)?;
        match self.unknown {
            0 => Ok(()),
            1 => f.write_str("; 1 has no such figure"),
            unknown => write!(f, "; {unknown} have no such figure"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use xpu_client::arrival::Arrival;
    use xpu_simulation::Simulation;
    use xpu_wire::{
        frame::{Body, Event, Frame, Life},
        id::Pid,
    };

    use super::*;

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        of: JobArgs,
    }

    /// Two jobs; these ranks of the first, which has four, die.
    fn advised(dead: std::ops::Range<u32>, words: &[&str]) -> Vec<String> {
        let mut following = Following::new([], Some("llama-70b".into()));
        let simulation = Simulation::new(1, 1, 4);
        let other = Simulation { job: "eval".into(), ..Simulation::new(2, 1, 1) };
        let mut take = |frame: Frame| following.take(Arrival::Frame(Box::new(frame)));
        let first = simulation.snapshots(1).remove(0);
        other.snapshots(1).into_iter().chain([first.clone()]).for_each(&mut take);
        for rank in dead {
            let (job, pid) = ("llama-70b".into(), Pid(4000 + rank));
            let body = Body::Event(Event::Life { job, rank: Rank(rank), pid, life: Life::Died });
            take(Frame { body, ..first.clone() });
        }
        let of = Line::parse_from([&["x"], words].concat()).of;
        next(&following.status(first.now), following.job(), &of)
    }

    /// A finding has its figures next to its sentence: whole numbers without a decimal point, others rounded.
    #[test]
    fn documents_have_the_figures_of_a_finding() {
        let simulation = Simulation { slow: vec![(Rank(3), 1.5)], ..Simulation::new(1, 1, 8) };
        let mut following = Following::new([], None);
        for second in 10..40 {
            let frames = if second == 10 { simulation.snapshots(second) } else { simulation.digests(second) };
            for frame in frames {
                following.take(Arrival::Frame(Box::new(frame)));
            }
        }
        let mut status = following.status(Moment::now());
        status.price(Some("2.5 EUR".parse().unwrap()));
        let document = serde_json::to_value(&status).unwrap();
        let found = &document["findings"][0];
        let hours = status.findings[0].cost.unwrap().gpu_hours;
        for cost in [found, &document["lost"]] {
            assert!((cost["money"].as_f64().unwrap() - 2.5 * hours).abs() < 0.006, "{cost}");
            assert_eq!((&cost["currency"], cost["gpu_hours"].as_f64()), (&"EUR".into(), Some(hours)));
        }
        let text = text::of(&status, None, 110);
        assert!(text.contains(&format!("GPU-hours ({:.2} EUR) so far", 2.5 * hours)), "{text}");
        assert_eq!(found["evidence"], status.findings[0].evidence.to_string());
        let figures = found["figures"].as_object().unwrap();
        assert!((figures["below_pct"].as_f64().unwrap() - 33.3).abs() < 1.0, "{figures:?}");
        assert_eq!((&figures["ranks_compared"], figures["ranks_compared"].is_u64()), (&8.into(), true));
        assert!(figures.values().all(|figure| figure.to_string().len() <= 7), "{figures:?}");
        assert_eq!((&found["kind"], &found["ranks"]), (&"slow_rank".into(), &vec![3].into()));
    }

    #[test]
    fn the_command_that_is_advised_is_one_that_is_not_refused() {
        let none = [""; 0];
        assert_eq!(advised(0..0, &[]), none, "nothing is wrong");
        assert_eq!(advised(2..3, &[]), ["xpu-top stacks --job llama-70b"]);
        assert_eq!(advised(2..3, &["--job", "llama-70b"]), ["xpu-top stacks --job llama-70b"]);
        assert_eq!(advised(0..4, &[]), none, "nobody is left whose stacks could be read");
    }
}
