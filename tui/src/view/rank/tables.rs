//! The GEMMs and collectives of the rank, by their time.

use std::time::Duration;

use ratatui::{buffer::Buffer, layout::Rect, text::Line};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{
    figure,
    status::{CollectiveStatus, GemmStatus},
};
use xpu_wire::frame::Life;

use crate::{
    app::{App, Inspection},
    glyph::{BARS, UNKNOWN},
    palette::Role,
    view::{panel, panel::Title},
    widget::{
        row::{self, Column},
        wrap::cut_at_word,
    },
    width::Breakpoint,
};

/// A rank answers a request within a second or two.
const PATIENCE: Duration = Duration::from_secs(5);

/// A column's head, and its cells.
#[derive(Clone, Copy)]
struct Place {
    head: &'static str,
    cells: Column,
}

const fn words(head: &'static str, width: usize) -> Place {
    Place { head, cells: Column::words(width) }
}

const fn figure(head: &'static str, width: usize) -> Place {
    Place { head, cells: Column::figure(width) }
}

const GEMMS: [Place; 7] = [
    words("MxNxK, type", 24),
    figure("count", 7),
    figure("TFLOPS", 6),
    figure("p50 µs", 6),
    figure("p99", 5),
    figure("max", 5),
    words("spread", 8),
];

/// Both tables fit the left side of 132 columns, and 80 columns.
const COLLECTIVES: [Place; 8] = [
    words("operation", 20),
    figure("size", 7),
    figure("count", 6),
    figure("GB/s", 4),
    figure("p50 µs", 6),
    figure("p99", 5),
    figure("max", 5),
    words("spread", 8),
];

pub(super) fn gemms(app: &App, rank: &Inspection, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let rows: Vec<_> = rank.status.gemms.iter().map(gemm).collect();
    table(app, rank, breakpoint, "GEMMs", "by shape, most time first", &GEMMS, &rows, area, buffer);
}

pub(super) fn collectives(
    app: &App,
    rank: &Inspection,
    breakpoint: Breakpoint,
    area: Rect,
    buffer: &mut Buffer,
) {
    let rows: Vec<_> = rank.status.collectives.iter().map(collective).collect();
    // The time of a collective also includes waiting, so it is no measure of the link.
    let means = if rows.is_empty() { "" } else { "GB/s of the transfer, µs with waiting" };
    table(app, rank, breakpoint, "Collectives", means, &COLLECTIVES, &rows, area, buffer);
}

fn gemm(gemm: &GemmStatus) -> [String; 7] {
    let batch = if gemm.batch == 1 { String::new() } else { format!(" b{}", gemm.batch) };
    let routine = if gemm.routine == "gemm" { String::new() } else { format!("{} ", gemm.routine) };
    let GemmStatus { m, n, k, datatype, transposed, .. } = gemm;
    let shape = format!("{routine}{m}x{n}x{k}{batch} {datatype} {transposed}");
    let tflops = gemm.tflops.map(|rate| rate.0);
    let tflops = tflops.map_or_else(|| UNKNOWN.to_owned(), figure::tenths);
    let times = [gemm.us_p50, gemm.us_p99, gemm.us_max].map(known);
    let [p50, p99, max] = times;
    let count = figure::count_within(7, gemm.count);
    [shape, count, tflops, p50, p99, max, spread(&gemm.parts)]
}

fn collective(of: &CollectiveStatus) -> [String; 8] {
    let name = format!("{} {} {}", of.operation, of.datatype, of.communicator);
    let count = figure::count_within(6, of.count);
    let rate = of.bus_gb_s.map(|rate| rate.0);
    let [p50, p99, max] = [of.us_p50, of.us_p99, of.us_max].map(known);
    [name, figure::bytes(of.bytes), count, known(rate), p50, p99, max, spread(&of.parts)]
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), figure::three)
}

/// The distribution of durations between the shortest and the longest, one bar per part. A part with any
/// duration has at least the lowest bar.
fn spread(parts: &[u64]) -> String {
    let most = parts.iter().copied().max().unwrap_or(0).max(1);
    let bar = |&count: &u64| match count {
        0 => ' ',
        count => BARS[(count as f64 / most as f64 * (BARS.len() - 1) as f64).round() as usize],
    };
    parts.iter().map(bar).collect()
}

/// Why its GEMMs and collectives are unknown, and where to find the reason.
fn awaited(app: &App, rank: &Inspection) -> String {
    let row = &app.job_view.rows()[rank.row];
    let asked = app.now().since(app.watched.since);
    match row.life {
        Life::Ended | Life::Died => "it ended before its shapes were requested".to_owned(),
        // Only watched ranks have summaries.
        _ if app.is_past() => "not recorded up to here: no viewer watched it".to_owned(),
        _ if !row.is_heard() => {
            format!("no report for {}: {} shows its host", figure::age(row.age), app.key("hosts"))
        }
        _ if asked >= PATIENCE => {
            format!(
                "requested {} ago, no answer yet: {} shows its host",
                figure::age(asked),
                app.key("hosts")
            )
        }
        _ => "waiting for its next summary, one a second".to_owned(),
    }
}

/// Draws the rows that fit, most time first, and counts the rest.
fn table<const N: usize>(
    app: &App,
    rank: &Inspection,
    breakpoint: Breakpoint,
    name: &str,
    means: &str,
    places: &[Place; N],
    rows: &[[String; N]],
    area: Rect,
    buffer: &mut Buffer,
) {
    let palette = app.palette;
    // A short list has a short frame.
    let frame = if breakpoint == Breakpoint::Wide { 3 } else { 2 };
    let area = Rect { height: area.height.min(rows.len().max(1) as u16 + frame), ..area };
    let fit = usize::from(area.height.saturating_sub(frame));
    let right = if rows.len() > fit { format!("{fit} of {}", rows.len()) } else { String::new() };
    let inner =
        panel::draw(palette, breakpoint, Title { name, about: means.to_owned(), right }, area, buffer);
    let inner = match breakpoint {
        Breakpoint::Wide => inner,
        _ => Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner },
    };
    if inner.height == 0 {
        return;
    }
    if rows.is_empty() {
        let text = cut_at_word(&awaited(app, rank), usize::from(inner.width));
        buffer.set_line(inner.x, inner.y, &Line::styled(text, palette.of(Role::Muted)), inner.width);
        return;
    }
    let columns = widths(places, rows, usize::from(inner.width));
    let heads = places.map(|place| place.head.to_owned());
    let lines = std::iter::once((&heads, Role::Muted)).chain(rows.iter().map(|row| (row, Role::Text)));
    for ((cells, role), y) in lines.zip(inner.y..inner.bottom()) {
        let text = line(&columns, cells, usize::from(inner.width));
        buffer.set_line(inner.x, y, &Line::styled(text, palette.of(role)), inner.width);
    }
}

/// The first column takes the remaining width, as far as its names need it. Complete names matter more than
/// the last column.
fn widths<const N: usize>(places: &[Place; N], rows: &[[String; N]], width: usize) -> [Column; N] {
    let mut columns = places.map(|place| place.cells);
    let least = columns[0].width;
    let longest = rows.iter().map(|cells| cells[0].width()).max().unwrap_or(0).max(least);
    columns[0].width = longest;
    if row::needed(&columns[..N - 1]) > width {
        columns[0].width = least;
        let left = width.saturating_sub(row::needed(&columns[..row::fitting(&columns, width)]));
        columns[0].width = longest.min(least + left);
    }
    columns
}

fn line<const N: usize>(columns: &[Column; N], cells: &[String; N], width: usize) -> String {
    row::line(&columns[..row::fitting(columns, width)], cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_takes_what_is_left_over_and_else_is_cut_between_words() {
        let row = ["AllReduce bf16 9ca792c9", "64 MiB", "71,760", "337", "416", "557", "594", "▁█"]
            .map(str::to_owned);
        let rows = [row];
        let shown = |width| {
            let columns = widths(&COLLECTIVES, &rows, width);
            line(&columns, &rows[0], width)
        };
        for width in 20..71 {
            let line = shown(width);
            let is_cut = line.starts_with("AllReduce bf16 …");
            assert!(line.starts_with("AllReduce bf16 9ca792c9") || is_cut, "{width}: {line}");
            assert!(!is_cut || width < 62, "{width}: the last column gives way to the name: {line}");
        }
        for width in [71, 200] {
            let line = shown(width);
            assert!(line.starts_with("AllReduce bf16 9ca792c9  64 MiB 71,760  337 "), "{line}");
            assert!(line.trim_end().ends_with("  594 ▁█") && line.width() <= 71, "{line}");
        }
    }
}
