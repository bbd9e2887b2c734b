//! A status for people: one line per rank, then the findings.

use std::{fmt::Write as _, time::Duration};

use xpu_analysis::render::Table;
use xpu_model::{
    figure::{age, clock, counted, fine_percent, percent},
    finding::{EndedFinding, Finding},
    job::processes,
    status::{
        NcclCalls, RankState, RankStatus, Status, StepSign,
        sentence::{claims, switched_off},
    },
};
use xpu_wire::{
    id::JobName,
    text::{clean, is_steering},
    unit::Moment,
};

use crate::command::output::indented;

/// Largest number of lines of ranks; larger jobs are better viewed on the screen.
const RANKS: usize = 256;

/// Number of ended findings, newest first; `--json` has more.
const GONE: usize = 8;

/// Longest text of a rank's place, and of a finding that has ended.
const LONGEST: usize = 200;
const LONGEST_PAST: usize = 1000;

const LONGEST_OPTIMIZER: usize = 40;
const LONGEST_HOST: usize = 40;

/// With a filter: its ranks, and its description.
type Filtered<'a> = (Vec<&'a RankStatus>, String);

/// The status as text, in lines of at most `width` columns where a line can be divided.
pub(super) fn of(status: &Status, filtered: Option<Filtered<'_>>, width: usize) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, status, filtered, width);
    text
}

fn write(to: &mut String, status: &Status, filtered: Option<Filtered<'_>>, width: usize) -> std::fmt::Result {
    let jobs: Vec<_> =
        status.other_jobs.iter().map(|job| printable(job.as_str(), JobName::LONGEST)).collect();
    if let (true, [first, ..]) = (status.ranks.is_empty(), &jobs[..]) {
        let (job, jobs) = (printable(status.job.as_str(), JobName::LONGEST), jobs.join(", "));
        return writeln!(to, "there is no job named {job}; there are: {jobs}; try --job {first}");
    }
    if status.ranks.is_empty() {
        return writeln!(
            to,
            "no ranks: start the job under `xpu-top run`, or name its hosts with --job-hosts or --hosts (a rank is seen from its first CUDA call or step on; `xpu-top doctor` on its host says why a program has none)"
        );
    }
    let steps = match (status.steps.min, status.steps.max) {
        (Some(min), Some(max)) if min == max => format!("step {max}"),
        (Some(min), Some(max)) => format!("steps {min} to {max}"),
        _ => status
            .steps
            .at_least
            .map_or_else(|| "steps not known".to_owned(), |bound| format!("step {bound} or more")),
    };
    let source = match (status.steps.source, &status.steps.optimizer) {
        (Some(StepSign::Detected | StepSign::DetectedLate), _) => " (detected)".to_owned(),
        (Some(StepSign::Marked), _) => " (marked)".to_owned(),
        (Some(StepSign::Optimizer), Some(name)) => format!(" (of {})", printable(name, LONGEST_OPTIMIZER)),
        _ => String::new(),
    };
    let mean = figure(status.steps.mean_ms);
    writeln!(
        to,
        "{}: {} of {} ranks{}, {steps}{source}, {mean} ms a step{}{}",
        status.job,
        processes(status.ranks.iter().map(|rank| rank.rank)),
        status.world_size,
        gpus(status),
        work(status),
        data_age(status)
    )?;
    let (ranks, filter) = match filtered {
        Some((ranks, filter)) => (ranks, Some(filter)),
        None => (status.ranks.iter().collect(), None),
    };
    if let Some(filter) = filter {
        writeln!(to, "{} {filter}", ranks.len())?;
    }
    Table::new("", &HEAD, &ranks[..ranks.len().min(RANKS)], RANKS, |rank| row(rank))
        .text(&["host", "state"])
        .write(to);
    if let Some(more) = ranks.len().checked_sub(RANKS).filter(|&more| more > 0) {
        writeln!(to, "and {more} more ranks: see all with --json")?;
    }
    for finding in &status.findings {
        write_finding(to, status, finding, width)?;
    }
    if let Some(lost) = &status.lost {
        let findings = counted(status.findings.len(), "finding", "findings");
        writeln!(to, "lost to {findings}: {lost}")?;
    }
    if let (Some(bound), true) = (&status.bound, status.findings.iter().all(|it| !it.stops_the_job())) {
        writeln!(to, "{bound}")?;
    }
    for gone in status.ended_findings.iter().take(GONE) {
        write_ended(to, gone)?;
    }
    let coverage = &status.coverage;
    write_blindness(to, status)?;
    writeln!(
        to,
        "{} ranks seen, {} of timed collectives matched,{} {} records dropped, {} frames lost, {} untimed, overhead {}",
        coverage.ranks_seen,
        coverage.joined_pct.map_or_else(|| "none".to_owned(), |percent| format!("{percent:.0} %")),
        coverage.gpu_time_pct.map_or_else(String::new, |pct| format!(" {pct:.0} % of GPU time identified,")),
        coverage.dropped_records,
        coverage.lost_frames,
        coverage.untimed,
        fine_percent(coverage.overhead_pct / 100.0)
    )?;
    if let Some(calls) = NcclCalls::of_all(status.ranks.iter().filter_map(|rank| rank.nccl_calls)) {
        writeln!(to, "NCCL: {calls}")?;
    }
    if let Some(first) = status.other_jobs_hang.first() {
        let hang: Vec<_> =
            status.other_jobs_hang.iter().map(|job| printable(job.as_str(), JobName::LONGEST)).collect();
        let first = printable(first.as_str(), JobName::LONGEST);
        writeln!(to, "! another job makes no progress: {}; --job {first} shows it", hang.join(", "))?;
    }
    match &jobs[..] {
        [] => Ok(()),
        [one] => writeln!(to, "there is another job: --job {one} shows it"),
        [first, ..] => writeln!(to, "other jobs: {}: --job {first} shows one", jobs.join(", ")),
    }
}

/// The headline, and below it the details, the advice and the cost.
fn write_finding(to: &mut String, status: &Status, finding: &Finding, width: usize) -> std::fmt::Result {
    let first = finding.ranks.first();
    let host = status.ranks.iter().find(|rank| Some(&rank.rank) == first).map(|rank| rank.host.as_str());
    let headline = finding.headline_on(host);
    writeln!(to, "! {}", clean(&headline))?;
    to.push_str(&indented(&clean(&finding.details(&headline)), width));
    to.push_str(&indented(&clean(&finding.evidence.gpus_sentence().unwrap_or_default()), width));
    to.push_str(&indented(&clean(&format!("next: {}", finding.advice)), width));
    // Of one finding, the sum below all is its cost.
    if let Some(cost) = finding.cost.filter(|_| status.findings.len() > 1) {
        writeln!(to, "  costs {cost}")?;
    }
    for place in finding.evidence.places() {
        writeln!(to, "  {}", printable(&place.to_string(), LONGEST))?;
    }
    Ok(())
}

/// Ended findings, by the clock of the hosts.
fn write_ended(to: &mut String, gone: &EndedFinding) -> std::fmt::Result {
    let moment = |seconds: f64| Moment((seconds.max(0.0) * 1e9) as u64);
    let lasted = Duration::from_secs_f64((gone.ended_at - gone.began_at).max(0.0));
    writeln!(
        to,
        "past, from {} for {}{}: {}",
        clock(moment(gone.began_at)),
        age(lasted),
        gone.lost().map_or_else(String::new, |lost| format!(", {lost}")),
        printable(&gone.evidence, LONGEST_PAST)
    )
}

/// Throughput that the program reports, if known.
fn work(status: &Status) -> String {
    let known = [
        status.tokens_per_s.map(|rate| format!(", {rate:.0} tokens/s")),
        status.samples_per_s.map(|rate| format!(", {rate:.1} samples/s")),
        status.loss.map(|loss| format!(", loss {loss:.4}")),
        match &status.loss_not_finite[..] {
            [] => None,
            [rank] => Some(format!(", the loss of rank {rank} is not finite")),
            [rank, ..] => Some(format!(", the loss of rank {rank} and others is not finite")),
        },
        status.mfu.map(|share| format!(", MFU {}", percent(share))),
    ];
    known.into_iter().flatten().collect()
}

/// The age of the figures, if no rank has current ones.
fn data_age(status: &Status) -> String {
    let over = status.ranks.iter().all(|rank| rank.state == RankState::Exited);
    let what = if over { "last figures, of" } else { "nothing new for" };
    let ago = if over { " ago" } else { "" };
    status.figures_age_s.map_or_else(String::new, |age| format!("; {what} {age:.0} s{ago}"))
}

/// Notes about missing figures, and why they are missing.
fn write_blindness(to: &mut String, status: &Status) -> std::fmt::Result {
    let coverage = &status.coverage;
    let partly_seen = coverage.ranks_seen < status.world_size;
    if partly_seen && coverage.joined_pct.is_some() && status.ranks.iter().any(|rank| rank.bus_gb_s.is_none())
    {
        writeln!(to, "! bus GB/s and skew ms need all ranks of a communicator: name all hosts of the job")?;
    }
    if coverage.ranks_off > 0 {
        writeln!(to, "! {}", switched_off(coverage.ranks_off as usize))?;
    }
    for blind in &coverage.blind {
        writeln!(to, "! not observed: {}", printable(blind, 200))?;
    }
    if coverage.turned_away > 0 {
        writeln!(
            to,
            "! {}",
            claims(coverage.turned_away, &printable(status.job.as_str(), JobName::LONGEST))
        )?;
    }
    Ok(())
}

/// If processes use several GPUs, each GPU is a row.
fn gpus(status: &Status) -> String {
    let several = status.ranks.iter().any(|rank| rank.rank.gpu().is_some());
    if several { format!(" on {} GPUs", status.ranks.len()) } else { String::new() }
}

const HEAD: [&str; 8] = ["rank", "host", "step", "ms", "TFLOPS", "bus GB/s", "skew ms", "state"];

fn row(rank: &RankStatus) -> Vec<String> {
    let step = match (rank.step, rank.step_at_least) {
        (Some(step), _) => step.to_string(),
        (None, Some(bound)) => format!(">={bound}"),
        (None, None) => "-".to_owned(),
    };
    vec![
        rank.rank.to_string(),
        printable(rank.host.as_str(), LONGEST_HOST),
        step,
        figure(rank.step_ms_mean),
        figure(rank.gemm_tflops.map(|rate| rate.0)),
        figure(rank.bus_gb_s.map(|rate| rate.0)),
        figure(rank.lateness_ms_p50),
        rank.state.name().to_owned(),
    ]
}

/// A host chooses its name, which must not move the cursor.
fn printable(text: &str, wide: usize) -> String {
    text.chars().filter(|&c| !is_steering(c)).take(wide).collect()
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;

    use super::*;

    fn status(ranks: u32) -> Status {
        let mut jobs = Jobs::default();
        let simulation = Simulation::new(1, 1, ranks);
        simulation.snapshots(1).iter().chain(&simulation.digests(2)).for_each(|frame| jobs.fold(frame));
        Status::of(&jobs, jobs.foremost().unwrap(), Moment(0))
    }

    #[test]
    fn every_rank_has_a_line_and_the_lines_are_even() {
        let text = of(&status(8), None, 110);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 8 + 2);
        assert!(lines[0].starts_with("llama-70b: 8 of 8 ranks"), "{text}");
        let columns: Vec<_> = lines[1..10].iter().map(|line| line.rfind("  ").unwrap()).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn with_a_filter_matching_ranks_are_listed_and_the_others_counted() {
        let status = status(8);
        let filter = xpu_client::filter::Filter::read("rank<2").unwrap();
        let (ranks, _) = filter.among(&status.ranks, &status.job);
        let text = of(&status, Some((ranks, "of 8 ranks are listed: rank<2".to_owned())), 110);
        assert_eq!(text.lines().count(), 1 + 1 + 1 + 2 + 2, "{text}");
        assert!(text.contains("8 of 8 ranks") && text.contains("2 of 8 ranks are listed: rank<2"), "{text}");
    }

    #[test]
    fn a_job_of_thousands_does_not_fill_the_terminal() {
        let text = of(&status(1000), None, 110);
        assert!(text.lines().count() < 300 && text.contains("and 744 more ranks"));
    }

    #[test]
    fn an_unknown_job_is_answered_with_the_known_ones() {
        let mut jobs = Jobs::default();
        Simulation::new(1, 1, 2).snapshots(1).iter().for_each(|frame| jobs.fold(frame));
        let absent = of(&Status::of(&jobs, &xpu_model::job::Job::new("nosuch".into()), Moment(0)), None, 110);
        assert!(absent.contains("nosuch") && absent.contains("llama-70b"), "{absent}");
        let other = Simulation { job: "eval".into(), ..Simulation::new(1, 1, 1) };
        other.snapshots(1).iter().for_each(|frame| jobs.fold(frame));
        let text = of(&Status::of(&jobs, jobs.foremost().unwrap(), Moment(0)), None, 110);
        assert!(text.contains("--job eval"), "{text}");
    }

    #[test]
    fn unobserved_parts_are_reported() {
        let mut status = status(8);
        status.coverage.blind.push("cuBLAS was not found".to_owned());
        status.coverage.turned_away = 2;
        status.ranks.iter_mut().for_each(|rank| rank.bus_gb_s = None);
        status.coverage.joined_pct = Some(0.0);
        // All ranks are here, so no host is missing.
        assert!(!of(&status, None, 110).contains("name all hosts"));
        status.world_size = 16;
        let text = of(&status, None, 110);
        for said in ["cuBLAS was not found", "2 processes claim ranks", "need all ranks of a communicator"] {
            assert!(text.contains(said), "{said}: {text}");
        }
    }

    #[test]
    fn a_status_without_data_gives_advice() {
        let none = Status::of(&Jobs::default(), &xpu_model::job::Job::new("x".into()), Moment(0));
        assert!(of(&none, None, 110).contains("xpu-top run"));
    }
}
