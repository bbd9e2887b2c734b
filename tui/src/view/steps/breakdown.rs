//! The parts of a step, as far as they are known without a capture. Unknown parts are drawn as unknown.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;
use xpu_wire::unit::Nanoseconds;

use super::{
    super::{
        headline,
        panel::{self, Title},
    },
    PARTS,
};
use crate::{app::App, glyph, palette::Role, widget::wrap::wrapped, width::Breakpoint};

/// Most lines of what a step would take without its stragglers, and of what they have cost the job; of the
/// latter on small screens.
const WHAT_IF: usize = 2;
const LOST: usize = 3;
const LOST_BRIEFLY: usize = 2;

/// Columns of a bar's label, and of its figures.
const LABEL: usize = 11;
const FIGURES: usize = 18;

/// Columns of a whole step, by breakpoint.
const BAR: [usize; 3] = [20, 14, 20];

/// Smallest useful width of a bar's meaning.
const WORDS: usize = 16;

/// One bar: pieces in their colours, the figures, and its meaning.
struct Part {
    label: &'static str,
    pieces: Vec<(f64, &'static str, Role)>,
    share: Option<f64>,
    /// Whether the share is a lower bound, which `≥` before it shows.
    least: bool,
    means: String,
    /// The meaning in at most `WORDS` columns.
    briefly: &'static str,
}

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let of = figure::counted(app.watched.ranks.len(), "rank", "ranks");
    let about = match breakpoint {
        Breakpoint::Wide => format!("last 30 s, median of {of}; parts may overlap"),
        Breakpoint::Medium => format!("last half minute, median of {of}"),
        _ => String::new(),
    };
    let title = Title { name: "Where time goes", about, ..Title::default() };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    bars(app, breakpoint, inner, buffer);
    let below =
        Rect { y: inner.y + inner.height.min(PARTS), height: inner.height.saturating_sub(PARTS), ..inner };
    let what_ifs = what_ifs(app, breakpoint, below.width);
    let lines = lines_of(&what_ifs).min(below.height);
    let [spans, mut rest] = Layout::vertical([Constraint::Fill(1), Constraint::Length(lines)]).areas(below);
    draw_spans(app, spans, buffer);
    for (name, lines) in what_ifs {
        labelled(app, name, &lines, rest, buffer);
        let drawn = rest.height.min(lines.len() as u16);
        rest = Rect { y: rest.y + drawn, height: rest.height - drawn, ..rest };
    }
}

/// Number of lines that the what-ifs take in a panel of this width.
pub(super) fn what_if_lines(app: &App, breakpoint: Breakpoint, width: u16) -> u16 {
    lines_of(&what_ifs(app, breakpoint, width))
}

fn lines_of(what_ifs: &[(&str, Vec<String>)]) -> u16 {
    what_ifs.iter().map(|(_, lines)| lines.len() as u16).sum()
}

/// What a step would take without its stragglers, and what they have cost the job, as far as it is known.
fn what_ifs(app: &App, breakpoint: Breakpoint, width: u16) -> Vec<(&'static str, Vec<String>)> {
    let most = if breakpoint == Breakpoint::Wide { LOST } else { LOST_BRIEFLY };
    let texts = [("what-if", app.what_if(), WHAT_IF), ("lost", app.what_if_sum(), most)];
    let known = texts.into_iter().filter_map(|(name, text, most)| Some((name, text?, most)));
    known.map(|(name, text, most)| (name, beside_label(&text, width, most))).collect()
}

/// A text in the columns beside a label.
fn beside_label(text: &str, width: u16, most: usize) -> Vec<String> {
    wrapped(text, usize::from(width).saturating_sub(LABEL), most)
}

/// Spans, as many as fit.
fn draw_spans(app: &App, area: Rect, buffer: &mut Buffer) {
    if app.steps.spans.is_empty() {
        return;
    }
    let each = app
        .steps
        .spans
        .iter()
        .map(|(name, took)| format!("{name} {} ms", figure::three(took.milliseconds())));
    let text = each.collect::<Vec<_>>().join(" · ");
    labelled(app, "spans", &beside_label(&text, area.width, area.height.into()), area, buffer);
}

/// Draws a text below the bars, as far as there is room.
fn labelled(app: &App, name: &str, lines: &[String], area: Rect, buffer: &mut Buffer) {
    let (label, plain) = (app.palette.of(Role::Muted), app.palette.of(Role::Text));
    let lines: Vec<_> = lines
        .iter()
        .enumerate()
        .map(|(at, line)| {
            let label = Span::styled(format!("{:<LABEL$}", if at == 0 { name } else { "" }), label);
            Line::from(vec![label, Span::styled(line.clone(), plain)])
        })
        .collect();
    headline::lines(&lines, area, buffer);
}

/// Draws the bars, without their frame.
pub(super) fn bars(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let bar = BAR[(breakpoint as usize).saturating_sub(Breakpoint::Narrow as usize).min(BAR.len() - 1)];
    let lines: Vec<_> =
        parts(app).into_iter().map(|part| line(app, part, bar, usize::from(area.width))).collect();
    headline::lines(&lines, area, buffer);
}

fn parts(app: &App) -> [Part; PARTS as usize] {
    let one = &app.steps.breakdown;
    let whole =
        |share: Option<f64>, role| share.map(|share| (share, glyph::SOLID, role)).into_iter().collect();
    let waiting = one.waiting.unwrap_or(0.0);
    let transfer = one.collectives.map(|all| (all - waiting, glyph::SOLID, Role::Good));
    let idle = one.waiting.map(|share| (share, glyph::SHADED, Role::Warning));
    // GEMMs do not run during exposed communication, so their shares add up. If exposed communication is
    // unknown, GEMMs and NCCL may overlap, and the rest is a lower bound.
    let beside = one.exposed.or(one.collectives);
    let rest = one.gemms.zip(beside).map(|(gemms, others)| (1.0 - gemms - others).max(0.0));
    [
        Part {
            label: "GEMM",
            pieces: whole(one.gemms, Role::Accent),
            share: one.gemms,
            least: false,
            means: "of ranks with timed GEMMs".to_owned(),
            briefly: "by timed ranks",
        },
        Part {
            label: "NCCL",
            pieces: transfer.into_iter().chain(idle).collect(),
            share: one.collectives,
            least: false,
            means: match one.waiting {
                Some(waiting) => format!("{} waits for stragglers", figure::percent(waiting)),
                None => "with waits for stragglers".to_owned(),
            },
            briefly: "shaded: waits",
        },
        Part {
            label: "exposed",
            pieces: whole(one.exposed, Role::Warning),
            share: one.exposed,
            least: false,
            means: "NCCL that GEMMs wait for".to_owned(),
            briefly: "GEMMs wait",
        },
        Part {
            label: "neither",
            pieces: rest.map(|rest| (rest, glyph::UNCLEAR, Role::Faint)).into_iter().collect(),
            share: rest,
            least: one.exposed.is_none(),
            means: "other kernels, copies, host".to_owned(),
            briefly: "other work, idle",
        },
        Part {
            label: "host waits",
            pieces: whole(one.blocked.map(|share| share.min(1.0)), Role::Faint),
            share: one.blocked,
            least: false,
            means: "threads wait for the GPU".to_owned(),
            briefly: "for the GPU",
        },
    ]
}

fn line(app: &App, part: Part, bar: usize, width: usize) -> Line<'static> {
    let muted = app.palette.of(Role::Muted);
    let mut spans = vec![Span::styled(format!("{:<LABEL$}", part.label), muted)];
    let (mut passed, mut drawn) = (0.0, 0);
    for (share, sign, role) in part.pieces {
        passed += share;
        let to = ((passed * bar as f64).round() as usize).clamp(drawn, bar);
        spans.push(Span::styled(sign.repeat(to - drawn), app.palette.of(role)));
        drawn = to;
    }
    spans.push(Span::styled("·".repeat(bar - drawn), app.palette.of(Role::Faint)));
    let step = app.job_view.step_time.map(Nanoseconds::milliseconds);
    let figures = match part.share {
        Some(share) => {
            let time =
                step.map_or_else(String::new, |step| format!("{:>8} ms", figure::tenths(step * share)));
            format!("{}{:>7}{time}", if part.least { "≥" } else { " " }, figure::percent(share))
        }
        None => format!("{:>6}", glyph::UNKNOWN),
    };
    spans.push(Span::styled(format!("{figures:<FIGURES$}  "), Style::new()));
    let taken = LABEL + bar + FIGURES + 2;
    if width >= taken + WORDS {
        let means = if part.means.width() <= width - taken { &part.means } else { part.briefly };
        spans.push(Span::styled(means.to_owned(), muted));
    }
    Line::from(spans)
}
