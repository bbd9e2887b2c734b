//! The content of a file, in some lines.

use std::path::Path;

use xpu_analysis::{capture::Report, file, render};
use xpu_model::figure;
use xpu_recording::{Recording, Span};

use super::traces;

/// A larger file is not summarized on the screen: its report would take minutes and all memory.
const LARGEST: u64 = 512 << 20;

/// Rows of a table.
const ROWS: usize = 4;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Sentences about its job and steps, its reliability, and missing data.
    pub about: Vec<String>,
    /// Shares of the time of all its steps, by name, which add up to 1; empty for a recording.
    pub shares: Vec<(&'static str, f64)>,
    /// The time of a step in milliseconds; `None` for a capture of a period.
    pub step_ms: Option<f64>,
    /// The costliest items, and the rank that enters collectives last: each with a name and a description.
    pub tops: Vec<(String, String)>,
    pub is_capture: bool,
}

impl Summary {
    pub(super) fn of(path: &Path) -> Result<Self, String> {
        if path.is_dir() {
            return Err(traces::NO_CAPTURE.to_owned());
        }
        let bytes = std::fs::metadata(path).map_err(|error| error.to_string())?.len();
        if bytes > LARGEST {
            return Err(format!(
                "{} are too much to summarize here; use `xpu-top report` or `--replay`",
                figure::bytes(bytes)
            ));
        }
        match file::open(path) {
            Ok((capture, complaints)) => Ok(Self::of_capture(&Report::of(&capture), complaints)),
            Err(why) if why == file::NO_CAPTURE => Self::of_recording(path),
            Err(why) => Err(why),
        }
    }

    fn of_capture(report: &Report, complaints: Vec<String>) -> Self {
        let sum = |part: fn(&xpu_analysis::capture::Summary) -> u64| {
            report.ranks.iter().map(|rank| part(&rank.summary) as f64).sum::<f64>()
        };
        let took = sum(|one| one.took_ns);
        let parts = [
            ("compute", sum(|one| one.compute_ns)),
            ("exposed communication", sum(|one| one.exposed_ns)),
            ("memory", sum(|one| one.memory_ns)),
            ("gap", sum(|one| one.gap_ns)),
        ];
        let steps = report.ranks.iter().flat_map(|rank| &rank.steps).filter(|step| !step.sampled).count();
        let gemms = report.gemms.iter().take(ROWS).map(|row| {
            let rate =
                row.tflops.map_or_else(|| "rate not known".to_owned(), |rate| format!("{rate} TFLOPS"));
            let share = row
                .share
                .map_or_else(String::new, |share| format!(", {} of the time", figure::percent(share)));
            (row.shape.to_string(), format!("{} times, {rate}{share}", figure::count(row.count)))
        });
        let per = if report.window.is_some() { "second" } else { "step" };
        let late = report.arrivals.iter().filter(|row| row.last > 0).take(ROWS).map(|row| {
            let said = format!(
                "last into {} of {} collectives, costs {} ms a {}",
                figure::count(row.last),
                figure::count(row.collectives),
                figure::three(row.cost_ns() as f64 / 1e6),
                per
            );
            (format!("rank {}", row.rank), said)
        });
        Self {
            about: render::preface(report).into_iter().chain(complaints).collect(),
            shares: if took > 0.0 {
                parts.map(|(name, part)| (name, part / took)).into()
            } else {
                Vec::new()
            },
            step_ms: (steps > 0 && report.window.is_none()).then(|| took / steps as f64 / 1e6),
            tops: gemms.chain(late).collect(),
            is_capture: true,
        }
    }

    fn of_recording(path: &Path) -> Result<Self, String> {
        let recording = Recording::open_file(path).map_err(|error| error.to_string())?;
        let Span { first: from, last: to } = recording.span();
        let frames: u64 = recording.entries().iter().map(|entry| u64::from(entry.frames)).sum();
        let header = recording.header();
        let mut about = vec![
            format!("from {} on, {}", figure::clock(from), figure::age(to.since(from))),
            format!(
                "{} frames of {}, written by xpu-top {}",
                figure::count(frames),
                figure::counted(header.hosts.len(), "named host", "named hosts"),
                header.by
            ),
        ];
        if !recording.is_closed() {
            about.push(
                "it was not closed: its writer was killed, and the last second may be missing".to_owned(),
            );
        }
        about.extend(recording.damage().iter().take(ROWS).map(ToString::to_string));
        Ok(Self { about, ..Self::default() })
    }
}
