//! One shape: its ranks, the slowest first, and the durations of single GEMMs.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};
use xpu_model::figure;
use xpu_wire::{histogram::Histogram, id::Rank};

use super::{
    super::{
        headline,
        panel::{self, Title},
    },
    name,
};
use crate::{
    app::{App, Basis, Gemm},
    glyph,
    palette::Role,
    widget::{bars, ends, row::Column},
    width::Breakpoint,
};

/// Columns of one rank, and of the longest bar in them.
const ENTRY: usize = 42;
const BAR: usize = 14;

/// Columns of a rank before its bar.
const BEFORE: usize = 34;

/// Columns of the durations, which are next to the ranks.
const BESIDE: u16 = 36;

/// Runs of ranks without a rate.
const RUNS: usize = 4;

/// Blanks between two figures of the durations.
const APART: usize = 3;

pub(super) fn draw(app: &App, breakpoint: Breakpoint, gemm: &Gemm, area: Rect, buffer: &mut Buffer) {
    let (ranks, durations) = if breakpoint == Breakpoint::Wide {
        let [ranks, durations] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(BESIDE)]).spacing(1).areas(area);
        (ranks, durations)
    } else {
        let [ranks, durations] = Layout::vertical([Constraint::Fill(1), Constraint::Length(2)]).areas(area);
        (ranks, durations)
    };
    draw_ranks(app, breakpoint, gemm, ranks, buffer);
    draw_durations(app, breakpoint, gemm, durations, buffer);
}

fn draw_ranks(app: &App, breakpoint: Breakpoint, gemm: &Gemm, area: Rect, buffer: &mut Buffer) {
    let about = match gemm.basis {
        Basis::Watched => "TFLOPS by rank, slowest first",
        Basis::Started => "TFLOPS by rank since it started; few timed here yet",
    };
    let title = Title {
        name: "Ranks",
        about: if breakpoint == Breakpoint::Narrow {
            "TFLOPS, slowest first".to_owned()
        } else {
            format!("{}, {about}", name(&gemm.shape))
        },
        right: gemm.rate().map_or_else(String::new, |rate| format!("median {}", figure::three(rate))),
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let inner = draw_untimed(app, gemm, inner, buffer);
    let lines = usize::from(inner.height);
    let columns = (usize::from(inner.width) / ENTRY).max(1);
    let width = inner.width / columns as u16;
    let rates = &gemm.rates;
    // The last entry has the number of those that did not fit.
    let fit = if rates.len() > lines * columns { (lines * columns).saturating_sub(1) } else { rates.len() };
    let place = |at: usize| Rect {
        x: inner.x + (at / lines.max(1)) as u16 * width,
        y: inner.y + (at % lines.max(1)) as u16,
        width: width.saturating_sub(2),
        height: 1,
    };
    for (at, &(rank, rate)) in rates[..fit].iter().enumerate() {
        let area = place(at);
        let bar = usize::from(area.width).saturating_sub(BEFORE).min(BAR);
        buffer.set_line(area.x, area.y, &entry(app, gemm, rank, rate, bar), area.width);
    }
    if let Some(&(_, rate)) = rates.get(fit).filter(|_| lines > 0) {
        let more = figure::counted(rates.len() - fit, "rank more", "ranks more");
        let text = format!("       {more}, from {} TFLOPS on", figure::three(rate));
        let area = place(fit);
        buffer.set_line(area.x, area.y, &Line::styled(text, app.palette.of(Role::Muted)), area.width);
    }
}

/// Names the ranks without a rate on the last line, and returns the area above it.
fn draw_untimed(app: &App, gemm: &Gemm, area: Rect, buffer: &mut Buffer) -> Rect {
    if gemm.untimed.is_empty() {
        return area;
    }
    let [above, line] = Layout::vertical([Constraint::Fill(1), Constraint::Length(1)]).areas(area);
    let since = match gemm.basis {
        Basis::Watched => "since this page was opened",
        Basis::Started => "so far",
    };
    let text = format!("       {}: none timed {since}", gemm.untimed.named(RUNS));
    buffer.set_line(line.x, line.y, &Line::styled(text, app.palette.of(Role::Muted)), line.width);
    above
}

const RANK: Column = Column::figure(6).whole();
const HOST: Column = Column::name(10);
const RATE: Column = Column::figure(5).whole();

fn entry(app: &App, gemm: &Gemm, rank: Rank, rate: f64, bar: usize) -> Line<'static> {
    let host =
        app.job().and_then(|job| job.rank(rank)).map(|view| view.host().to_string()).unwrap_or_default();
    let slow = gemm.is_slow(rate);
    let below = gemm.scale.map_or(0.0, |scale| scale.deviation(rate) * 100.0);
    let most = gemm.scale.map_or(rate, |scale| scale.highest);
    let length = if most > 0.0 { (rate / most * bar as f64).round() as usize } else { 0 };
    let loud = app.palette.of(if slow { Role::Warning } else { Role::Faint });
    let said = app.palette.of(if slow { Role::Warning } else { Role::Muted });
    Line::from(vec![
        Span::styled(RANK.cell(&rank.to_string()) + " ", app.palette.of(Role::Strong)),
        Span::styled(HOST.cell(&host) + " ", app.palette.of(Role::Muted)),
        Span::raw(RATE.cell(&figure::three(rate)) + " "),
        Span::styled(
            format!(
                "{}{:>4} %  ",
                if slow { glyph::LOW } else { " " },
                format!("{:+.0}", below.round() + 0.0)
            ),
            said,
        ),
        Span::styled(glyph::BAR.repeat(length), loud),
    ])
}

fn draw_durations(app: &App, breakpoint: Breakpoint, gemm: &Gemm, area: Rect, buffer: &mut Buffer) {
    let durations = &gemm.durations;
    let timed = figure::count(durations.count());
    let title = Title {
        name: "Durations",
        about: if breakpoint == Breakpoint::Narrow { String::new() } else { "on all these ranks".to_owned() },
        right: format!("{timed} timed"),
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let (Some(from), Some(to)) = (durations.quantile(0.0), durations.max()) else {
        let text = "none timed since this page was opened; rare shapes take longer";
        panel::paragraph(app.palette, Role::Muted, text, inner, buffer);
        return;
    };
    let below = headline::lines(&quantiles(app, durations, inner.width.into()), inner, buffer);
    if below.height < 4 {
        return;
    }
    let tall = below.height.min(10);
    let plot = Rect { y: below.y + 1, height: tall - 2, ..below };
    let counts = durations.parts(from, to, plot.width.into());
    let most = counts.iter().copied().max().unwrap_or(0).max(1);
    let shares: Vec<_> = counts.iter().map(|&count| count as f64 / most as f64).collect();
    let style = app.palette.of(Role::Accent);
    bars::draw(&shares, style, style, plot, buffer);
    let ends = |time| Line::styled(figure::short_time(time), app.palette.of(Role::Muted));
    let axis = Rect { y: plot.bottom(), height: 1, ..plot };
    ends::draw(&ends(from), &ends(to), axis, buffer);
    let rest = Rect { y: axis.y + 1, height: below.bottom().saturating_sub(axis.y + 1), ..below };
    let one_in = gemm.count.checked_div(gemm.timed).unwrap_or(0);
    let arithmetic = format!(
        "{} GFLOP each; {} of {} timed since the ranks started, one in {}",
        figure::three(gemm.shape.flops() / 1e9),
        figure::count(gemm.timed),
        figure::count(gemm.count),
        figure::count(one_in)
    );
    panel::paragraph(app.palette, Role::Muted, &arithmetic, rest, buffer);
}

/// The figures of the durations; a figure that does not fit completely goes to the next line.
fn quantiles(app: &App, durations: &Histogram, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99), ("max", 1.0)] {
        let time = durations.quantile(quantile).map_or_else(String::new, figure::short_time);
        let figure = [
            Span::styled(format!("{name} "), app.palette.of(Role::Muted)),
            Span::styled(time, app.palette.of(Role::Strong)),
        ];
        let needed: usize = figure.iter().map(Span::width).sum();
        match lines.last_mut() {
            Some(line) if line.width() + APART + needed <= width => {
                line.push_span(" ".repeat(APART));
                line.extend(figure);
            }
            _ => lines.push(Line::from(figure.to_vec())),
        }
    }
    lines
}
