//! `xpu-top diff`: compares the costs in two captures.

use std::{fmt::Write as _, process::ExitCode};

use xpu_analysis::{
    capture::{Capture, Change, CostKind, Culprit, Diff, Per},
    render::Table,
};
use xpu_model::{
    figure::{counted, percent},
    status::ExitCode as Code,
};

use super::{output::print_document, report::read};
use crate::args::{DiffArgs, Limit, UsageError};

/// Exit code: a part took longer than `--fail-on` allows.
const WORSE: u8 = 1;

pub fn diff(args: &DiffArgs) -> anyhow::Result<ExitCode> {
    let (mut before, mut after) = (read(&args.before)?, read(&args.after)?);
    args.select.apply(&mut before)?;
    args.select.apply(&mut after)?;
    comparable(args, &before, &after)?;
    let diff = Diff::of(&before, &after);
    print_document(&diff, args.json, || text(&diff, args.top))?;
    if diff.before.steps == 0 || diff.after.steps == 0 {
        eprintln!("xpu-top: one of the files has no complete step or window: there is nothing to compare");
        return Ok(ExitCode::from(Code::NoData as u8));
    }
    for (what, in_first) in recorded_by_one(&before, &after) {
        let (with, without) =
            if in_first { ("the first", "the second") } else { ("the second", "the first") };
        eprintln!("xpu-top: {what} are only in {with} file, not in {without}: they are not compared");
    }
    let worse: Vec<_> = args.fail_on.iter().filter_map(|limit| exceeds(limit, &diff)).collect();
    for line in &worse {
        eprintln!("xpu-top: {line}");
    }
    Ok(ExitCode::from(if worse.is_empty() { 0 } else { WORSE }))
}

/// Checks that both captures are of the same kind: a step has no counterpart in a period.
fn comparable(args: &DiffArgs, before: &Capture, after: &Capture) -> Result<(), UsageError> {
    if before.per() != after.per() {
        let why = "one capture covers steps and the other a period (--for): compare two of the same kind";
        return Err(UsageError::Value(why.to_owned()));
    }
    if before.per() == Per::Second && args.fail_on.iter().any(|limit| limit.part == CostKind::Step) {
        let why =
            "--fail-on: a capture of a period has no step: name a part, for example `--fail-on compute=3%`";
        return Err(UsageError::Value(why.to_owned()));
    }
    Ok(())
}

/// The kinds of data that were requested for only one of the files, and whether that is the first file.
fn recorded_by_one(before: &Capture, after: &Capture) -> impl Iterator<Item = (&'static str, bool)> {
    let kinds = [
        ("all kernels", before.has_all_kernels(), after.has_all_kernels()),
        ("functions of Python", before.has_functions(), after.has_functions()),
    ];
    kinds.into_iter().filter(|(_, one, other)| one != other).map(|(what, one, _)| (what, one))
}

/// The message if a limit is exceeded. A change within noise does not count; if the noise is unknown, the
/// figure alone decides.
fn exceeds(limit: &Limit, diff: &Diff) -> Option<String> {
    let row = diff.row(limit.part)?;
    let more = row.relative.unwrap_or(if row.change_ns > 0.0 { f64::INFINITY } else { 0.0 });
    let beyond_noise = row.noise_ns.is_none_or(|noise| row.change_ns > noise);
    (more > limit.most && beyond_noise).then(|| {
        format!("{} takes {} longer, but at most {} is allowed", row.name, percent(more), percent(limit.most))
    })
}

fn text(diff: &Diff, top: usize) -> String {
    let side = |side: &xpu_analysis::capture::Side| {
        let ranks = counted(side.ranks, "rank", "ranks");
        match diff.per {
            Per::Step => format!("{ranks}, {} of a rank", counted(side.steps, "step", "steps")),
            Per::Second => format!("{ranks}, one window"),
        }
    };
    let mut out = format!(
        "before: {}; after: {}; times in ms per {} and rank; ! changed by more than noise\n",
        side(&diff.before),
        side(&diff.after),
        diff.per.word()
    );
    let head = ["what", "", "before", "after", "change", "noise", "%", "", "most"];
    let (parts, others): (Vec<_>, Vec<_>) = diff.rows.iter().partition(|row| row.kind <= CostKind::Gap);
    let of = if diff.per == Per::Step { "the step and its parts" } else { "parts of the time" };
    Table::new(of, &head, &parts, usize::MAX, |row| line(row)).write(&mut out);
    if let Some(Culprit { rank, wait_ns }) = diff.culprit {
        let more = wait_ns / 1e6;
        let _ = writeln!(
            out,
            "rank {rank} is the straggler: the others wait {more:.2} ms more per step for it\n"
        );
    }
    Table::new("what changed most", &head, &others, top, |row| line(row)).write(&mut out);
    out
}

fn line(row: &Change) -> Vec<String> {
    let ms = |nanoseconds: f64| format!("{:.3}", nanoseconds / 1e6);
    let kind = match row.kind {
        CostKind::Gemm => "gemm",
        CostKind::Transfer => "transfer",
        CostKind::Waiting => "waiting",
        CostKind::Kernel => "kernel",
        CostKind::Copy => "copy",
        CostKind::Host => "host",
        _ => "",
    };
    vec![
        row.name.clone(),
        kind.to_owned(),
        ms(row.before_ns),
        ms(row.after_ns),
        format!("{:+.3}", row.change_ns / 1e6),
        row.noise_ns.map_or_else(|| "?".to_owned(), ms),
        match row.relative {
            Some(part) => format!("{:+.1}", part * 100.0),
            None if row.after_ns > 0.0 => "new".to_owned(),
            None => "-".to_owned(),
        },
        if row.real { "!" } else { "" }.to_owned(),
        row.most
            .filter(|_| row.real)
            .map_or_else(String::new, |(rank, by)| format!("rank {rank} {:+.2}", by / 1e6)),
    ]
}
