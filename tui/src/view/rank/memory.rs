//! The memory in use on the rank's GPU over time.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use xpu_model::figure;

use crate::{
    app::{App, Inspection, Metric, PERIOD},
    palette::Role,
    view::panel::{self, Title},
    widget::{bars, ends},
    width::Breakpoint,
};

/// Columns of the figures left of the plot.
const FIGURES: u16 = 10;

/// Lines of a useful panel, and of the largest: its frame, the plot and the axis.
const LEAST: u16 = 8;
const MOST: u16 = 16;

const GIB: f64 = (1_u64 << 30) as f64;

/// Draws the panel at the top of the area if it fits and there is something to show.
pub(super) fn draw(app: &App, rank: &Inspection, area: Rect, buffer: &mut Buffer) {
    let history = app.history.values(rank.row, Metric::Memory);
    let known = || history.iter().flatten().copied().map(f64::from);
    if area.height < LEAST || known().next().is_none() {
        return;
    }
    let area = Rect { height: area.height.min(MOST), ..area };
    let device = rank.status.device.as_ref();
    let total = device.and_then(|device| device.memory_total_bytes).map(|bytes| bytes as f64 / GIB);
    let used = device.and_then(|device| device.memory_used_bytes).map(figure::bytes);
    let of = total.map_or_else(String::new, |total| format!(" of {}", figure::bytes((total * GIB) as u64)));
    let title = Title {
        name: "GPU memory",
        about: "in use by all processes".to_owned(),
        right: used.map_or_else(String::new, |used| format!("now {used}{of}")),
    };
    let inner = panel::draw(app.palette, Breakpoint::Wide, title, area, buffer);
    let plot = Rect { x: inner.x + FIGURES, width: inner.width - FIGURES, height: inner.height - 1, ..inner };
    let top = total.unwrap_or_else(|| known().fold(0.0, f64::max));
    let columns = columns(&history, plot.width.into());
    let shares: Vec<_> = columns.iter().map(|used| used.map_or(0.0, |used| (used / top).min(1.0))).collect();
    let (body, edge) = (app.palette.of(Role::Faint), app.palette.of(Role::Accent));
    bars::draw(&shares, body, edge, plot, buffer);
    let muted = app.palette.of(Role::Muted);
    for (gib, y) in [(figure::three(top), plot.y), ("0".to_owned(), plot.bottom() - 1)] {
        let text = format!("{gib:>5} GiB ");
        buffer.set_stringn(inner.x, y, text, FIGURES.into(), muted);
    }
    let span = PERIOD * u32::try_from(history.len()).unwrap_or(u32::MAX);
    let axis = Rect { y: plot.bottom(), height: 1, ..plot };
    let begin = Line::from(Span::styled(format!("{} ago", figure::age(span)), muted));
    ends::draw(&begin, &Line::from(Span::styled("now", muted)), axis, buffer);
}

/// The most memory in use in each of `width` columns, the newest last. If there are fewer values, each takes
/// several columns.
fn columns(history: &[Option<f32>], width: usize) -> Vec<Option<f64>> {
    let from = |column: usize| column * history.len() / width.max(1);
    (0..width)
        .map(|column| {
            let (first, next) = (from(column), from(column + 1));
            let values = history.get(first..next.max(first + 1)).unwrap_or_default();
            values.iter().flatten().copied().map(f64::from).reduce(f64::max)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_shows_the_most_of_its_time() {
        let history = [Some(1.0), Some(3.0), None, Some(2.0)];
        assert_eq!(columns(&history, 2), [Some(3.0), Some(2.0)]);
        assert_eq!(columns(&history[..2], 4), [Some(1.0), Some(1.0), Some(3.0), Some(3.0)]);
        assert_eq!(columns(&history[2..3], 2), [None, None]);
        assert_eq!(columns(&[], 2), [None, None]);
    }
}
