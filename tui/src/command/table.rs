//! A status for people: one line a rank, then what is wrong.

use std::fmt::Write as _;

use xpu_shared::status::{RankState, RankStatus, Status};

/// Lines of ranks; a longer job is for the screen.
const RANKS: usize = 256;

pub(super) fn of(status: &Status) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, status);
    text
}

fn write(to: &mut String, status: &Status) -> std::fmt::Result {
    if status.ranks.is_empty() {
        return writeln!(
            to,
            "no ranks: start the job under `xpu-top run`, or name its hosts with --job-hosts or --hosts"
        );
    }
    let steps = match (status.steps.min, status.steps.max) {
        (Some(min), Some(max)) if min == max => format!("step {max}"),
        (Some(min), Some(max)) => format!("steps {min} to {max}"),
        _ => "steps not marked".to_owned(),
    };
    let median = figure(status.steps.median_ms);
    writeln!(
        to,
        "{}: {} of {} ranks, {steps}, {median} ms a step",
        status.job,
        status.ranks.len(),
        status.world_size
    )?;
    let hosts = status.ranks.iter().map(|rank| rank.host.as_str().chars().count());
    let wide = hosts.max().unwrap_or(0).clamp(4, 40);
    writeln!(
        to,
        "{:>6}  {:wide$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  state",
        "rank", "host", "step", "ms", "TFLOPS", "bus GB/s", "late ms"
    )?;
    for rank in status.ranks.iter().take(RANKS) {
        line(to, rank, wide)?;
    }
    if let Some(more) = status.ranks.len().checked_sub(RANKS).filter(|&more| more > 0) {
        writeln!(to, "and {more} more ranks: see all with --json")?;
    }
    for finding in &status.findings {
        writeln!(to, "! {}", finding.evidence)?;
    }
    let coverage = &status.coverage;
    writeln!(
        to,
        "{} ranks seen, {} records dropped, {} frames lost, {} untimed, overhead {:.3} %",
        coverage.ranks_seen,
        coverage.dropped_records,
        coverage.lost_frames,
        coverage.untimed,
        coverage.overhead_pct
    )
}

fn line(to: &mut String, rank: &RankStatus, wide: usize) -> std::fmt::Result {
    let step = rank.step.map_or_else(|| "-".to_owned(), |step| step.to_string());
    writeln!(
        to,
        "{:>6}  {:wide$}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {}",
        rank.rank.0,
        printable(rank.host.as_str(), wide),
        step,
        figure(rank.step_ms_p50),
        figure(rank.gemm_tflops.map(|rate| rate.0)),
        figure(rank.bus_gb_s.map(|rate| rate.0)),
        figure(rank.lateness_ms_p50),
        state(rank.state),
    )
}

/// A host names itself: nothing of it may move the cursor.
fn printable(text: &str, wide: usize) -> String {
    text.chars().filter(|c| !c.is_control()).take(wide).collect()
}

fn figure(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.1}"))
}

fn state(state: RankState) -> &'static str {
    match state {
        RankState::Ok => "ok",
        RankState::Slow => "slow",
        RankState::Hung => "hung",
        RankState::Silent => "silent",
        RankState::Exited => "exited",
    }
}

#[cfg(test)]
mod tests {
    use xpu_shared::{job::Jobs, simulation::Simulation, unit::Moment};

    use super::*;

    fn status(ranks: u32) -> Status {
        let mut jobs = Jobs::default();
        let simulation = Simulation::new(1, 1, ranks);
        simulation.snapshots(1).iter().chain(&simulation.digests(2)).for_each(|frame| jobs.fold(frame));
        Status::of(&jobs, jobs.foremost().unwrap(), Moment(0))
    }

    #[test]
    fn every_rank_has_a_line_and_the_lines_are_even() {
        let text = of(&status(8));
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines.len(), 2 + 8 + 1);
        assert!(lines[0].starts_with("llama-70b: 8 of 8 ranks"), "{text}");
        let columns: Vec<_> = lines[1..10].iter().map(|line| line.rfind("  ").unwrap()).collect();
        assert!(columns.windows(2).all(|pair| pair[0] == pair[1]), "{text}");
    }

    #[test]
    fn a_job_of_thousands_does_not_fill_the_terminal() {
        let text = of(&status(1000));
        assert!(text.lines().count() < 300 && text.contains("and 744 more ranks"));
    }

    #[test]
    fn nothing_seen_says_what_to_do() {
        let none = Status::of(&Jobs::default(), &xpu_shared::job::Job::new("x".into()), Moment(0));
        assert!(of(&none).contains("xpu-top run"));
    }
}
