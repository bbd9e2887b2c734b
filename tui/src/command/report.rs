//! `xpu-top report`: what a capture holds.

use std::{fmt::Write as _, path::Path, process::ExitCode};

use xpu_shared::{
    capture::{Capture, Kind, Report, Summary},
    codec,
    recording::{Kind as BlockKind, Recording},
    status::ExitCode as Code,
};

use super::stacks::print;
use crate::args::{ReportArgs, UsageError};

pub fn report(args: &ReportArgs) -> anyhow::Result<ExitCode> {
    let (capture, complaints) = read(&args.file)?;
    for complaint in &complaints {
        eprintln!("xpu-top: {}: {complaint}", args.file.display());
    }
    let report = Report::of(&capture);
    print(&if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { text(&report) })?;
    Ok(ExitCode::from(if report.ranks.is_empty() { Code::NoData as u8 } else { 0 }))
}

/// What a file holds of a capture, and what of it could not be read.
pub(super) fn read(path: &Path) -> anyhow::Result<(Capture, Vec<String>)> {
    let wrong = |why: String| UsageError::Value(format!("cannot read {}: {why}", path.display()));
    let mut recording = Recording::open_file(path).map_err(|error| wrong(error.to_string()))?;
    let mut capture = Capture::default();
    for entry in recording.entries().to_vec() {
        if entry.kind != BlockKind::Overview {
            continue;
        }
        let Some(block) = recording.block(&entry).map_err(|error| wrong(error.to_string()))? else {
            continue;
        };
        for frame in block.records().filter_map(|record| codec::decode(record.frame).ok()) {
            capture.take(&frame);
        }
    }
    if capture.is_empty() {
        let why = "it is a recording, and no capture is in it; `xpu-top capture -o FILE` makes one";
        return Err(wrong(why.to_owned()).into());
    }
    Ok((capture, recording.damage().iter().map(ToString::to_string).collect()))
}

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// Writing to a String cannot fail.
fn text(report: &Report) -> String {
    let mut out = String::new();
    let steps: Vec<_> = report.steps.iter().map(ToString::to_string).collect();
    let _ = writeln!(
        out,
        "{}: {} ranks, steps {}, {} operations, {} dropped, {} without GPU times",
        report.job,
        report.ranks.len(),
        if steps.is_empty() { "none in common".to_owned() } else { steps.join(" ") },
        report.operations,
        report.dropped,
        report.untimed,
    );
    let _ = match (report.clock.error_ns, report.clock.gpu_error_ns) {
        (Some(error), gpu) => writeln!(
            out,
            "clocks agree within {:.3} ms by {} collectives; GPU times are within {:.3} ms of the host's",
            milliseconds(error),
            report.clock.collectives,
            milliseconds(gpu.unwrap_or(0)),
        ),
        (None, Some(gpu)) => writeln!(
            out,
            "no collective ended on two ranks: clocks are not aligned; GPU times are within {:.3} ms of the host's",
            milliseconds(gpu)
        ),
        (None, None) => writeln!(out, "no GPU time was read"),
    };
    if !report.closed {
        let _ =
            writeln!(out, "the file was not closed: who wrote it was ended, and what came later is missing");
    }
    for missing in &report.missing {
        let _ = writeln!(out, "rank {} is missing: {}", missing.rank, missing.why);
    }
    for rank in report.ranks.iter().filter(|rank| rank.parts_missing > 0) {
        let _ = writeln!(out, "rank {}: {} parts are missing", rank.rank, rank.parts_missing);
    }
    let _ = writeln!(
        out,
        "\n{:>5} {:>8} {:>9} {:>9} {:>9} {:>9} {:>9}  {:>6} {:>6} {:>6} {:>6} {:>6}",
        "rank",
        "step",
        "took ms",
        "compute",
        "comm",
        "exposed",
        "rest",
        "gemms",
        "nccl",
        "graphs",
        "kernels",
        "host"
    );
    for rank in &report.ranks {
        for step in &rank.steps {
            let of = |kinds: &[Kind]| kinds.iter().filter_map(|kind| step.operations.get(kind)).sum::<u64>();
            let Summary { took_ns, compute_ns, communication_ns, exposed_ns, rest_ns, .. } = step.summary;
            let [took, compute, communication, exposed, rest] =
                [took_ns, compute_ns, communication_ns, exposed_ns, rest_ns].map(milliseconds);
            let _ = writeln!(
                out,
                "{:>5} {:>8} {took:>9.2} {compute:>9.2} {communication:>9.2} {exposed:>9.2} {rest:>9.2}  {:>6} {:>6} {:>6} {:>6} {:>6}",
                rank.rank.0,
                step.step.0,
                of(&[Kind::Gemm]),
                of(&[Kind::Collective, Kind::PointToPoint]),
                of(&[Kind::Graph]),
                of(&[Kind::Kernel]),
                of(&[Kind::Copy, Kind::Set, Kind::Blocked]),
            );
        }
    }
    out
}
