//! The state of the job as plain text, to be pasted into a chat.
#![forbid(unsafe_code)]

use std::fmt::Write as _;

use xpu_model::{
    figure,
    finding::{Confidence, Kind},
    job::Job,
    stack,
};

use xpu_wire::id::Rank;

use crate::{
    app::{App, Group},
    glyph,
};

/// Log entries in a report.
const LOGGED: usize = 12;

/// Ranks whose hosts are named.
const PLACES: usize = 4;

/// Runs of ranks on one line.
const RUNS: usize = 12;

pub fn text(app: &App) -> String {
    let mut text = String::new();
    let job_view = &app.job_view;
    let job = app.job().map_or("no job", |job| job.name().as_str());
    // Writing to a String cannot fail.
    let _ = writeln!(text, "xpu-top {}: job {job}, {}", env!("CARGO_PKG_VERSION"), figure::clock(app.now()));
    let steps = job_view.steps.map_or_else(
        || glyph::UNKNOWN.to_owned(),
        |(least, most)| {
            if least == most { figure::count(least.0) } else { format!("{}-{}", least.0, most.0) }
        },
    );
    let step_time = job_view.headline.step_time.map_or_else(|| glyph::UNKNOWN.to_owned(), figure::time);
    let ago = job_view.headline.age.map_or_else(String::new, |age| format!(", {} ago", figure::age(age)));
    let _ = writeln!(
        text,
        "{} of {} ranks reporting, {}, step {steps}, {step_time} a step{ago}",
        job_view.heard,
        job_view.world_size,
        figure::counted(job_view.hosts, "host", "hosts")
    );
    if job_view.findings.is_empty() {
        let _ = writeln!(text, "\nNo findings.");
    }
    if let Some(others) = app.observed.others.text() {
        let _ = writeln!(text, "{} {others}", glyph::ALARM);
    }
    if let Some(bound) = job_view.bound.as_ref().filter(|_| job_view.stall().is_none()) {
        let _ = writeln!(text, "{bound}");
    }
    for finding in &job_view.findings {
        let sign = if finding.stops_the_job() { glyph::ALARM } else { glyph::WARNING };
        let _ = writeln!(text, "\n{sign} {}", finding.headline(app.job()));
        let _ = writeln!(text, "  {}{}", sure(finding.confidence), finding.evidence);
        let since = app.since(finding);
        let lasted = figure::age(app.now().since(since));
        let _ = writeln!(text, "  since {}, {lasted}", figure::clock(since));
        if let Some(places) = hosts(app, &finding.ranks) {
            let _ = writeln!(text, "  {places}");
        }
        if let Some(cost) = &finding.cost {
            let _ = writeln!(text, "  costs {cost}");
        }
        let command = match (finding.kind, &finding.ranks[..]) {
            _ if app.is_replay() => String::new(),
            (Kind::Hang, &[rank]) => {
                format!("; xpu-top stacks --rank {rank}, with your --job-hosts or --hosts")
            }
            (Kind::Hang | Kind::Exited, _) => "; xpu-top stacks, with your --job-hosts or --hosts".to_owned(),
            _ => String::new(),
        };
        let _ = writeln!(text, "  next: {}{command}", finding.advice);
    }
    if !app.stacks.rank_positions().groups.is_empty() {
        let _ = writeln!(text, "\nRanks of communicator {}:", app.stacks.rank_positions().title);
        for group in &app.stacks.rank_positions().groups {
            let _ = writeln!(
                text,
                "  {}: entered {}, enqueued {}, done {}, in call: {}{}",
                group.ranks.named(RUNS),
                group.entered,
                group.enqueued,
                group.completed,
                in_call(group),
                report_age(app, group)
            );
        }
    }
    if !app.stacks.rows().is_empty() {
        // The stacks are from another moment than the rest.
        let read = app.job().and_then(Job::stacks_since);
        let read = read.map_or_else(String::new, |read| format!(" read at {},", figure::clock(read)));
        let tree = stack::text(app.stacks.tree());
        let _ = write!(text, "\nStacks,{read} branches with the fewest ranks first:\n{tree}");
        for note in app.stacks.notes() {
            let _ = writeln!(text, "{note}");
        }
    }
    if app.logged().next().is_some() {
        let _ = writeln!(text, "\nLog:");
    }
    for entry in app.logged().take(LOGGED) {
        let (at, lost) = (figure::clock(entry.at), entry.lost());
        let _ = writeln!(text, "  {at} {}: {}{lost}", entry.what, entry.finding.evidence);
    }
    text
}

/// `rank 3 on node-1`: the hosts of the named ranks.
fn hosts(app: &App, ranks: &[Rank]) -> Option<String> {
    let job = app.job()?;
    let known = ranks.iter().filter_map(|&rank| Some(format!("rank {rank} on {}", job.rank(rank)?.host())));
    let places: Vec<_> = known.take(PLACES).collect();
    let more = match ranks.len().saturating_sub(PLACES) {
        0 => String::new(),
        more => format!(" and {} more", figure::count(more as u64)),
    };
    (!places.is_empty()).then(|| format!("{}{more}", places.join(", ")))
}

/// The age of the last reports of its ranks, if they are not current.
fn report_age(app: &App, group: &Group) -> String {
    let rows = group.ranks.iter().filter_map(|rank| app.job_view.rows().get(app.job_view.row_of(rank)?));
    let oldest = rows.filter(|row| !row.is_heard()).map(|row| row.age).max();
    oldest.map_or_else(String::new, |age| format!(", as it was {} ago", figure::age(age)))
}

/// The confidence of a finding, before its sentence.
pub fn sure(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Certain => "",
        Confidence::Likely => "likely: ",
        Confidence::Guess => "perhaps: ",
    }
}

/// The call in which the ranks wait, and for how long.
pub fn in_call(group: &Group) -> String {
    use xpu_wire::frame::Life;
    match (group.life, group.call) {
        (Life::Died, _) => "its process is gone".to_owned(),
        (Life::Ended, _) => "it has ended".to_owned(),
        (Life::Silent, None) => "it does not report".to_owned(),
        (_, Some(call)) => format!("{call} {}", figure::age(group.held)),
        (Life::Alive, None) => "none".to_owned(),
    }
}
