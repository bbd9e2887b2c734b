//! The spread of steps: over ranks, and of single steps.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use xpu_model::figure;
use xpu_wire::unit::Nanoseconds;

use super::super::{
    headline,
    panel::{self, Title},
};
use crate::{
    app::{App, Metric},
    glyph,
    palette::Role,
    widget::{bars, ends},
    width::Breakpoint,
};

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    if area.height < 2 {
        return;
    }
    let count = app.steps.singles.count();
    let title = Title {
        name: "Spread",
        about: "of step times".to_owned(),
        right: if count == 0 { String::new() } else { figure::counted(count as usize, "step", "steps") },
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let below = headline::lines(&[ranks(app), singles(app)], inner, buffer);
    let of = &app.steps.singles;
    if let (Some(from), Some(to)) = (of.quantile(0.0), of.max())
        && below.height >= 3
    {
        let plot = Rect { height: below.height - 1, ..below };
        let counts = of.parts(from, to, plot.width.into());
        let most = counts.iter().copied().max().unwrap_or(0).max(1);
        // Most steps are alike, so the few different ones must stay visible.
        let shares: Vec<_> =
            counts.iter().map(|&count| ((1 + count) as f64).ln() / ((1 + most) as f64).ln()).collect();
        let style = app.palette.of(Role::Accent);
        bars::draw(&shares, style, style, plot, buffer);
        let muted = app.palette.of(Role::Muted);
        let axis = Rect { y: plot.bottom(), height: 1, ..plot };
        let end = |time| Line::styled(figure::time(time), muted);
        ends::draw(&end(from), &end(to), axis, buffer);
    }
}

/// The mean time of a step of each rank: the fastest, the median, the slowest.
fn ranks(app: &App) -> Line<'static> {
    let mut all: Vec<f64> = app
        .job_view
        .rows()
        .iter()
        .filter(|row| row.is_heard())
        .filter_map(|row| row.status.step_ms_mean)
        .collect();
    all.sort_by(f64::total_cmp);
    let at = |share: f64| all.get(((all.len() as f64 * share).ceil() as usize).saturating_sub(1)).copied();
    let worst = app.job_view.worst(Metric::StepTime).map(|(row, _)| format!("rank {}", row.status.rank));
    line(app, "ranks", [at(0.5), at(0.99), at(1.0)], &worst.unwrap_or_default())
}

/// Single steps of the watched ranks.
fn singles(app: &App) -> Line<'static> {
    let of = |quantile| app.steps.singles.quantile(quantile).map(Nanoseconds::milliseconds);
    line(app, "single", [of(0.5), of(0.99), of(1.0)], "")
}

fn line(app: &App, what: &str, figures: [Option<f64>; 3], about: &str) -> Line<'static> {
    let muted = app.palette.of(Role::Muted);
    let mut spans = vec![Span::styled(format!("{what:<7}"), muted)];
    for (name, figure) in ["p50", "p99", "max"].into_iter().zip(figures) {
        let text = figure.map_or_else(|| glyph::UNKNOWN.to_owned(), figure::three);
        spans.push(Span::styled(format!("{name} "), muted));
        spans.push(Span::styled(format!("{text} "), app.palette.of(Role::Strong)));
    }
    spans.push(Span::styled(format!("ms  {about}"), muted));
    Line::from(spans)
}
