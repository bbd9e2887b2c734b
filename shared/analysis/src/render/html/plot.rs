//! The plots: the breakdown of each rank's time, and one step of all ranks.

use std::fmt::Write as _;

use crate::capture::{Lane, RankReport, Report, Spans};

use super::super::milliseconds;

/// In units of the drawing: the width of the names on the left, and of the bars next to them.
const LEFT: f64 = 70.0;
const WIDE: f64 = 930.0;

/// Number of ranks drawn; more would be indistinguishable.
const RANKS: usize = 256;

/// Narrower pieces are drawn together with their neighbours.
const FINEST: f64 = 0.15;

/// Bars of the mean step of each rank, all on one scale.
pub(super) fn breakdown(report: &Report, out: &mut String) {
    let mean = |rank: &RankReport, time: u64| {
        time as f64 / rank.steps.iter().filter(|step| step.summary.is_some()).count().max(1) as f64
    };
    let ranks: Vec<_> = report.ranks.iter().filter(|rank| rank.summary.took_ns > 0).take(RANKS).collect();
    let longest = ranks.iter().map(|rank| mean(rank, rank.summary.took_ns)).fold(0.0, f64::max);
    if ranks.is_empty() || longest <= 0.0 {
        return;
    }
    let title =
        if report.window.is_some() { "time of the window by rank" } else { "time of a step by rank, mean" };
    begin(out, title, ranks.len(), 18);
    for (row, rank) in ranks.iter().enumerate() {
        let spent = &rank.summary;
        let top = row as f64 * 18.0;
        name(out, top + 12.0, &format!("rank {}", rank.rank));
        let mut at = LEFT;
        for (class, word, time) in [
            ("compute", "compute", spent.compute_ns),
            ("comm", "exposed communication", spent.exposed_ns),
            ("memory", "memory", spent.memory_ns),
            ("gap", "gap", spent.gap_ns),
        ] {
            let time = mean(rank, time);
            let width = time / longest * (WIDE - 80.0);
            let said = format!("rank {}: {word} {:.2} ms", rank.rank, time / 1e6);
            rectangle(out, class, Rectangle { x: at, y: top + 2.0, width, height: 13.0 }, &said);
            at += width;
        }
        let _ = write!(
            out,
            "<text class=\"faint\" x=\"{:.1}\" y=\"{:.1}\">{:.2} ms</text>",
            at + 5.0,
            top + 12.0,
            mean(rank, spent.took_ns) / 1e6
        );
    }
    out.push_str("</svg>\n");
}

/// For each rank its compute, and below that its communication and copies.
pub(super) fn timeline(what: &str, lanes: &[Lane], out: &mut String) {
    let lanes = &lanes[..lanes.len().min(RANKS)];
    let begin_at = lanes.iter().map(|lane| lane.from.0).min().unwrap_or(0);
    let ends = lanes.iter().map(|lane| {
        let spans = [&lane.compute, &lane.communication, &lane.memory];
        spans.into_iter().filter_map(Spans::end).max().unwrap_or(lane.to).max(lane.to).0
    });
    let whole = ends.max().unwrap_or(0).saturating_sub(begin_at);
    if whole == 0 {
        return;
    }
    let title = format!("{what}, {:.2} ms, by one clock: what it launched", milliseconds(whole));
    begin(out, &title, lanes.len(), 22);
    let x = |at: u64| LEFT + at.saturating_sub(begin_at) as f64 / whole as f64 * WIDE;
    for (row, lane) in lanes.iter().enumerate() {
        let top = row as f64 * 22.0;
        name(out, top + 14.0, &format!("rank {}", lane.rank));
        rectangle(out, "track", Rectangle { x: LEFT, y: top + 2.0, width: WIDE, height: 18.0 }, "");
        for (class, word, spans, top) in [
            ("compute", "compute", &lane.compute, top + 2.0),
            ("comm", "communication", &lane.communication, top + 11.0),
            ("memory", "memory", &lane.memory, top + 11.0),
        ] {
            for (from, to) in joined(spans.iter().map(|(from, to)| (x(from.0), x(to.0)))) {
                let ms = (to - from) / WIDE * milliseconds(whole);
                let said = format!("rank {}: {word} {ms:.2} ms", lane.rank);
                let width = (to - from).max(FINEST);
                rectangle(out, class, Rectangle { x: from, y: top, width, height: 8.0 }, &said);
            }
        }
    }
    out.push_str("</svg>\n");
}

fn joined(all: impl Iterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut joined: Vec<(f64, f64)> = Vec::new();
    for (from, to) in all {
        match joined.last_mut() {
            Some(last) if from - last.1 < FINEST => last.1 = to,
            _ => joined.push((from, to)),
        }
    }
    joined
}

/// The title and the start of the drawing. Writing to a String cannot fail.
fn begin(out: &mut String, title: &str, rows: usize, each: usize) {
    let (title, high) = (super::escaped(title), rows * each + 4);
    let _ = write!(
        out,
        "<h2>{title}</h2>\n<svg viewBox=\"0 0 1000 {high}\" role=\"img\" aria-label=\"{title}\">\n"
    );
}

fn name(out: &mut String, y: f64, text: &str) {
    let text = super::escaped(text);
    let _ = write!(out, "<text x=\"{:.1}\" y=\"{y:.1}\" text-anchor=\"end\">{text}</text>", LEFT - 8.0);
}

/// A rectangle, given by its upper left corner and its size.
struct Rectangle {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

fn rectangle(out: &mut String, class: &str, Rectangle { x, y, width, height }: Rectangle, title: &str) {
    let _ = write!(
        out,
        "<rect class=\"{class}\" x=\"{x:.2}\" y=\"{y:.1}\" width=\"{width:.2}\" height=\"{height}\">"
    );
    if !title.is_empty() {
        let _ = write!(out, "<title>{}</title>", super::escaped(title));
    }
    out.push_str("</rect>\n");
}
