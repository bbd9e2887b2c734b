//! The report as text: its source, missing data, the use of time, and the tables.

use std::{collections::BTreeMap, fmt::Write as _};

use xpu_model::figure::{self, counted, runs};
use xpu_wire::{
    frame::{CaptureEnd, Tracing},
    id::Rank,
    unit::Nanoseconds,
};

use super::{Table, milliseconds, tables};
use crate::capture::{PythonRank, PythonReport, RankReport, Report, Seen, StepReport, Summary};

/// The whole report. Writing to a String cannot fail.
pub fn text(report: &Report, top: usize) -> String {
    let mut out = String::new();
    for line in preface(report) {
        let _ = writeln!(out, "{line}");
    }
    breakdown(report, top).write(&mut out);
    for table in tables::all(report, top) {
        table.write(&mut out);
    }
    out
}

/// The report's source, its reliability, and missing data.
pub fn preface(report: &Report) -> Vec<String> {
    let workers = report.behaviour.workers.len();
    if report.ranks.is_empty() && workers > 0 {
        let ranks = counted(workers, "rank", "ranks");
        let mut lines = vec![format!("{}: the functions of {ranks}, without single operations", report.job)];
        lines.extend(gaps_of_file(report));
        lines.extend(report.behaviour.sentences());
        return lines;
    }
    let steps: Vec<_> = report.steps.iter().map(|step| step.0).collect();
    let mut lines = vec![format!(
        "{}: {}, {}, {} operations, {} dropped, {} without GPU times",
        report.job,
        counted(report.ranks.len(), "rank", "ranks"),
        match report.window {
            Some(window) => format!("a window of {}", figure::short_time(Nanoseconds(window.length_ns))),
            None if steps.is_empty() => "no steps in common".to_owned(),
            None => format!("steps {}", runs(&steps)),
        },
        report.operations,
        report.dropped,
        report.untimed,
    )];
    lines.push(match (report.clock.error_ns, report.clock.gpu_error_ns) {
        (Some(error), gpu) => format!(
            "clocks agree within {:.3} ms by {} collectives; GPU times are within {:.3} ms of the host's",
            milliseconds(error),
            report.clock.collectives,
            milliseconds(gpu.unwrap_or(0)),
        ),
        (None, Some(gpu)) => format!(
            "no collective ended on two ranks, so clocks are not aligned; GPU times are within {:.3} ms of the host's",
            milliseconds(gpu)
        ),
        (None, None) => "no GPU time was read".to_owned(),
    });
    lines.extend(report.hang.iter().map(|evidence| format!("the job hung: {evidence}")));
    lines.extend(report.pace.and_then(|pace| pace.sentence()));
    lines.extend(unreached(report));
    lines.extend(beyond(report));
    lines.extend(gaps_of_file(report));
    let cut = report.ranks.iter().filter(|rank| rank.parts_missing > 0);
    lines.extend(by_ranks(cut.map(|rank| (rank.rank, format!("{} parts are missing", rank.parts_missing)))));
    lines.extend(by_ranks(said(report, "kernels from CUPTI", |rank| &rank.activity)));
    lines.extend(by_ranks(said(report, "Python functions", |rank| &rank.functions)));
    let unseen = report.ranks.iter().filter(|rank| rank.seen == Seen::Operations).count();
    if unseen > 0 && !report.ranks.is_empty() {
        let whose = if unseen == report.ranks.len() { String::new() } else { format!(" of {unseen} ranks") };
        lines.push(format!(
            "compute{whose} is GEMMs, graphs and kernels requested by name; other kernels count as gap"
        ));
    }
    lines.extend(idle(report));
    if let Some(python) = &report.python {
        lines.extend(by_ranks(python.ranks.iter().filter_map(|rank| {
            let why = rank.why.as_ref()?;
            Some((rank.rank, format!("Python stacks were not sampled completely: {why}")))
        })));
        lines.extend(sampling(python));
        lines.extend(python.sentences());
    }
    lines.extend(report.behaviour.sentences());
    lines
}

/// The data that the file lacks.
fn gaps_of_file(report: &Report) -> Vec<String> {
    let missing = report.missing.iter().map(|missing| (missing.rank, format!("missing: {}", missing.why)));
    let cut = (!report.closed)
        .then(|| "the file was not closed: its writer was killed, and the end is missing".to_owned());
    cut.into_iter().chain(by_ranks(missing)).collect()
}

/// The kinds of GPU gaps over all ranks, and the rank whose host kept its GPU waiting longest.
fn idle(report: &Report) -> Option<String> {
    let sum = |part: fn(&RankReport) -> u64| report.ranks.iter().map(part).fold(0, u64::saturating_add);
    let parts =
        [sum(|rank| rank.gaps.host_ns), sum(|rank| rank.gaps.kernel_ns), sum(|rank| rank.gaps.other_ns)];
    let unknown = sum(|rank| rank.gaps.unknown_ns);
    let all = parts.iter().fold(unknown, |all, &part| all.saturating_add(part));
    let took = sum(|rank| rank.summary.took_ns);
    if all == 0 || took == 0 {
        return None;
    }
    let percent = |part: u64| figure::whole_percent(part as f64 / all as f64);
    let mut line = format!(
        "gaps are {} of the time: {} waiting for the host, {} between kernels, {} for other work",
        figure::percent(all as f64 / took as f64),
        percent(parts[0]),
        percent(parts[1]),
        percent(parts[2]),
    );
    if unknown > 0 {
        let _ = write!(line, ", {} unknown", percent(unknown));
    }
    if let Some(most) = report.ranks.iter().max_by_key(|rank| rank.gaps.host_ns)
        && report.ranks.len() > 1
        && most.gaps.host_ns > 0
    {
        let of = most.gaps.host_ns as f64 / most.summary.took_ns.max(1) as f64;
        let _ = write!(
            line,
            "; rank {} waits longest for its host, {} of its time",
            most.rank,
            figure::percent(of)
        );
    }
    Some(line)
}

/// How Python's stacks were sampled, and what that cost.
fn sampling(python: &PythonReport) -> Option<String> {
    let samples: u64 = python.ranks.iter().map(|rank| rank.samples).sum();
    let most = |each: fn(&PythonRank) -> f64| python.ranks.iter().map(each).fold(0.0, f64::max);
    let rate = python.ranks.iter().map(|rank| rank.rate_hz).max()?;
    let missed = python.ranks.iter().map(|rank| rank.missed).fold(0, u64::saturating_add);
    let mut line = format!("Python stacks at {rate} Hz: {samples} samples counted, {missed} left out");
    if python.ranks.iter().any(|rank| rank.sampler_cpu_share.is_some()) {
        let cpu = most(|rank| rank.sampler_cpu_share.unwrap_or(0.0));
        let _ = write!(line, "; sampling took up to {} of a core per rank", figure::whole_percent(cpu));
    }
    if python.ranks.iter().any(|rank| rank.native) {
        let sum = |part: fn(&PythonRank) -> u64| python.ranks.iter().map(part).fold(0, u64::saturating_add);
        let (stops, stopped) = (sum(|rank| rank.stops), sum(|rank| rank.stopped_ns));
        let mean = stopped as f64 / stops.max(1) as f64 / 1e3;
        let longest = most(|rank| rank.longest_stop_ns as f64) / 1e3;
        let _ = write!(
            line,
            ", and stopped a thread {stops} times, for {mean:.0} us each, {longest:.0} us at most"
        );
    } else {
        line.push_str(", and stopped no thread");
    }
    Some(line)
}

/// Ranks that did not reach the last requested step, and their last step.
fn unreached(report: &Report) -> Vec<String> {
    let Some([first, last]) = report.asked else { return cut_short(report) };
    let came = report.ranks.iter().filter_map(|rank| {
        let end = rank.steps.last().and_then(|step| step.step).filter(|_| rank.ended != CaptureEnd::Done)?;
        let of =
            if first == last { format!("step {first} was") } else { format!("steps {first} to {last} were") };
        Some((rank.rank, format!("{of} requested, and the last completed step is {end}")))
    });
    by_ranks(came)
}

/// Ranks that recorded less than the requested period.
fn cut_short(report: &Report) -> Vec<String> {
    let Some(window) = report.window else { return Vec::new() };
    let said = |took: u64| figure::short_time(Nanoseconds(took));
    let short = report.ranks.iter().filter(|rank| rank.ended != CaptureEnd::Done).filter_map(|rank| {
        let took = rank.steps.last().map_or(0, |step| step.took_ns);
        let of = said(window.asked_ns);
        (took < window.asked_ns)
            .then(|| (rank.rank, format!("{} of the requested {of} were recorded", said(took))))
    });
    by_ranks(short)
}

/// A note about work of an unfinished step, which no table includes.
fn beyond(report: &Report) -> Vec<String> {
    by_ranks(report.ranks.iter().filter_map(|rank| {
        let in_steps = rank.steps.iter().flat_map(|step| step.operations.values()).sum::<u64>();
        let rest = rank.operations.checked_sub(in_steps).filter(|&rest| rest > 0)?;
        let what = counted(rest as usize, "operation", "operations");
        Some((
            rank.rank,
            format!("{what} of a step that did not end: in `export --chrome` and `--perfetto` only"),
        ))
    }))
}

/// Why records were refused, and how many were dropped.
fn said<'a>(
    report: &'a Report,
    what: &'a str,
    of: impl Fn(&RankReport) -> &Tracing + 'a,
) -> impl Iterator<Item = (Rank, String)> + 'a {
    report.ranks.iter().filter_map(move |rank| match of(rank) {
        Tracing::Refused { why } => Some((rank.rank, format!("no {what}: {why}"))),
        Tracing::Recorded { dropped, .. } if *dropped > 0 => {
            Some((rank.rank, format!("{dropped} of the {what} were dropped")))
        }
        Tracing::NotAsked | Tracing::Recorded { .. } => None,
    })
}

/// One line for all ranks with the same text.
fn by_ranks(all: impl Iterator<Item = (Rank, String)>) -> Vec<String> {
    let mut texts: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for (rank, text) in all {
        texts.entry(text).or_default().push(rank.process().0.into());
    }
    let line = |(text, ranks): (String, Vec<u64>)| {
        let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
        format!("{noun} {}: {text}", runs(&ranks))
    };
    texts.into_iter().map(line).collect()
}

/// A line for each step of each rank; if there are many, one line for each rank.
pub(super) fn breakdown(report: &Report, top: usize) -> Table {
    const HEAD: [&str; 9] =
        ["rank step", "took ms", "compute", "exposed", "memory", "gap", "comm", "hidden", "held"];
    let what = if report.window.is_some() { "the window" } else { "a step" };
    let title = format!(
        "time of {what}, ms = compute + exposed communication + memory + gap; hidden: communication that overlaps compute"
    );
    let head = if report.window.is_some() {
        ["rank"].iter().chain(&HEAD[1..]).copied().collect()
    } else {
        HEAD.to_vec()
    };
    let steps: Vec<_> =
        report.ranks.iter().flat_map(|rank| rank.steps.iter().map(move |step| (rank, step))).collect();
    if steps.len() <= 3 * top.max(8) {
        return Table::new(title, &head, &steps, usize::MAX, |(rank, step)| line_of_step(rank, step));
    }
    let title = if report.window.is_some() { title } else { format!("{title}; means") };
    Table::new(title, &head, &report.ranks, 3 * top, |rank| {
        let whole = rank.steps.iter().filter(|step| step.summary.is_some()).count();
        let name = match report.window {
            Some(_) => format!("{}{}", rank.rank, place(rank)),
            None => format!("{} ({}){}", rank.rank, counted(whole, "step", "steps"), place(rank)),
        };
        if whole == 0 {
            // The step's time is unknown, not zero.
            return vec![name + " not recorded completely"];
        }
        cells(name, &rank.summary, whole as f64)
    })
}

fn place(rank: &RankReport) -> String {
    rank.groups.iter().fold(String::new(), |said, (axis, at)| format!("{said} {axis}{at}"))
}

fn line_of_step(rank: &RankReport, step: &StepReport) -> Vec<String> {
    let name = match step.step {
        Some(number) => format!("{:<4} {number}{}", rank.rank, place(rank)),
        None => format!("{}{}", rank.rank, place(rank)),
    };
    match &step.summary {
        Some(summary) => cells(name, summary, 1.0),
        None => vec![name + " sampled", figure::milliseconds(Nanoseconds(step.took_ns))],
    }
}

fn cells(name: String, summary: &Summary, steps: f64) -> Vec<String> {
    let ms = |nanoseconds: u64| format!("{:.2}", milliseconds(nanoseconds) / steps);
    vec![
        name,
        ms(summary.took_ns),
        ms(summary.compute_ns),
        ms(summary.exposed_ns),
        ms(summary.memory_ns),
        ms(summary.gap_ns),
        ms(summary.communication_ns),
        summary.hidden().map_or_else(|| "-".to_owned(), figure::whole_percent),
        ms(summary.blocked_ns),
    ]
}
