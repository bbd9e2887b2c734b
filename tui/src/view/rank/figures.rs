//! The rank's figures next to those of its peers or of the pinned rank, with their history.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;

use crate::{
    action::Action,
    app::{App, Comparison, Inspection, Metric},
    glyph::{HIGH, LOW, UNKNOWN},
    hits::{Hits, Target},
    palette::Role,
    view::panel::Title,
    widget::{scale::Worse, sparkline},
};

/// The metrics, in order of importance.
const METRICS: [Metric; 11] = [
    Metric::Gemm,
    Metric::StepTime,
    Metric::Skew,
    Metric::Bus,
    Metric::Exposed,
    Metric::Peak,
    Metric::Clock,
    Metric::Power,
    Metric::Temperature,
    Metric::Busy,
    Metric::Memory,
];

/// Columns of a name, of a figure, of the worst rank's name, and the smallest useful sparkline.
const NAME: usize = 15;
const FIGURE: usize = 9;
const WHO: usize = 8;
const HISTORY: usize = 8;
/// Runs of ranks in the title.
const RUNS: usize = 3;

pub(super) struct Comparisons {
    rows: Vec<(Metric, Comparison)>,
    /// The pinned rank, its row, and its name.
    beside: Option<(usize, String)>,
    about: String,
}

impl Comparisons {
    pub(super) fn of(app: &App, rank: &Inspection) -> Self {
        let known = |metric: &Metric| Some((*metric, rank.compared(&app.job_view, *metric)?));
        let beside = app.selection.pinned.filter(|pinned| *pinned != rank.status.rank);
        let beside = beside.and_then(|pinned| Some((app.job_view.row_of(pinned)?, format!("rank {pinned}"))));
        let others = rank.peers.len().saturating_sub(1);
        let about = match (&beside, others) {
            (Some((_, name)), _) => format!("beside {name}"),
            (None, 0) => "no other rank does the same work".to_owned(),
            (None, _) => {
                let ranks = rank.peers.iter().map(|&row| app.job_view.rows()[row].status.rank);
                let ranks: xpu_model::stack::Ranks = ranks.collect();
                format!(
                    "among {} of the same work: {}",
                    figure::counted(others + 1, "rank", "ranks"),
                    ranks.brief(RUNS)
                )
            }
        };
        Self { rows: METRICS.iter().filter_map(known).collect(), beside, about }
    }

    pub(super) fn title(&self) -> Title<'static> {
        Title { name: "Figures", about: self.about.clone(), right: String::new() }
    }

    /// The height, including the head.
    pub(super) fn height(&self) -> u16 {
        self.rows.len().max(1) as u16 + 1
    }

    pub(super) fn draw(
        &self,
        app: &App,
        rank: &Inspection,
        area: Rect,
        buffer: &mut Buffer,
        hits: &mut Hits,
    ) {
        let palette = app.palette;
        if self.rows.is_empty() {
            let text = "nothing timed yet: figures come with its first steps";
            buffer.set_line(area.x, area.y, &Line::styled(text, palette.of(Role::Muted)), area.width);
            return;
        }
        let heads: [&str; 3] = match &self.beside {
            Some((_, name)) => ["this", name, "difference"],
            None => ["this", "median", "worst"],
        };
        let taken = NAME + 3 * (FIGURE + 1) + 1 + WHO;
        let left = usize::from(area.width).saturating_sub(taken + 1);
        let head = format!("{:NAME$}{}", "", heads.map(|head| format!("{head:>FIGURE$} ")).concat());
        buffer.set_line(area.x, area.y, &Line::styled(head, palette.of(Role::Muted)), area.width);
        if left >= HISTORY {
            let text = match app.history.first().zip(app.history.last()) {
                Some((first, last)) => {
                    let span = crate::app::PERIOD * (last - first + 1) as u32;
                    format!("last {}", figure::age(span))
                }
                None => String::new(),
            };
            let x = area.x + (taken + 1) as u16;
            buffer.set_stringn(x, area.y, text, left, palette.of(Role::Muted));
        }
        for ((metric, known), y) in self.rows.iter().zip(area.y + 1..area.bottom()) {
            buffer.set_line(area.x, y, &self.line(app, *metric, known), area.width);
            if self.beside.is_none() {
                let who = Rect {
                    x: area.x + (NAME + 2 * (FIGURE + 1)) as u16,
                    y,
                    width: (FIGURE + 1 + WHO) as u16,
                    height: 1,
                };
                hits.put(who.intersection(area), Target::Do(Action::InspectRank(known.of)));
            }
            if left >= HISTORY {
                let bars = bars(app, rank.row, *metric, known, left);
                let style = palette.of(if known.bad { Role::Warning } else { Role::Faint });
                buffer.set_stringn(area.x + (taken + 1) as u16, y, bars, left, style);
            }
        }
    }

    fn line(&self, app: &App, metric: Metric, known: &Comparison) -> Line<'static> {
        let palette = app.palette;
        let said = |value: Option<f64>| value.map_or_else(|| UNKNOWN.to_owned(), figure::tenths);
        let sign = if metric.worse() == Worse::Low { LOW } else { HIGH };
        let this = if known.bad { format!("{sign} {}", said(known.this)) } else { said(known.this) };
        let loud = if known.bad { palette.of(Role::Warning) } else { palette.of(Role::Strong) };
        let plain = Style::new();
        let mut spans = vec![
            Span::styled(format!("{:NAME$}", metric.title()), palette.of(Role::Muted)),
            Span::styled(format!("{} ", right(&this, FIGURE)), loud),
        ];
        if let Some((row, _)) = &self.beside {
            let other = metric.of(&app.job_view.rows()[*row]);
            let by = known.this.zip(other);
            let difference = by.map(|(this, other)| this - other);
            let text = difference.map_or_else(|| UNKNOWN.to_owned(), |by| signed(by, figure::tenths));
            let share =
                by.filter(|(_, other)| *other > 0.0).map(|(this, other)| (this / other - 1.0) * 100.0);
            let share =
                share.map_or_else(String::new, |share| format!("{} %", signed(share, figure::tenths)));
            let worse = difference.is_some_and(|by| match metric.worse() {
                Worse::Low => by < 0.0,
                Worse::High => by > 0.0,
            });
            let role = if known.bad && worse { Role::Warning } else { Role::Text };
            spans.push(Span::styled(format!("{} ", right(&said(other), FIGURE)), plain));
            spans.push(Span::styled(format!("{} ", right(&text, FIGURE)), palette.of(role)));
            spans.push(Span::styled(right(&share, WHO), palette.of(role)));
        } else {
            spans.push(Span::styled(format!("{} ", right(&figure::tenths(known.median), FIGURE)), plain));
            spans.push(Span::styled(format!("{} ", right(&figure::tenths(known.worst), FIGURE)), plain));
            spans.push(Span::styled(format!("rank {}", known.of), palette.of(Role::Muted)));
        }
        spans.into()
    }
}

/// Its history, on a scale that includes the peers' median.
fn bars(app: &App, row: usize, metric: Metric, known: &Comparison, width: usize) -> String {
    let values: Vec<f32> = app.history.values(row, metric).into_iter().flatten().collect();
    let full = match metric.worse() {
        Worse::Low => known.median as f32,
        Worse::High => 0.0,
    };
    sparkline::calm(sparkline::bars(&values, full, width))
}

fn right(text: &str, width: usize) -> String {
    format!("{}{text}", " ".repeat(width.saturating_sub(text.width())))
}

fn signed(value: f64, said: fn(f64) -> String) -> String {
    let text = said(value);
    if value > 0.0 && text.chars().any(|c| ('1'..='9').contains(&c)) { format!("+{text}") } else { text }
}
