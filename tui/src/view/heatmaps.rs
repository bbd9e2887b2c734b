//! Two quantities of every rank side by side: of the present, with one row per host; or over time, with one
//! row per rank.

mod past;
mod places;

use past::Past;
use places::Places;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{figure, stack::Ranks};

use crate::{
    action::{Action, Choosing},
    app::{App, JobView, Maps, Metric, Zoom},
    glyph::{ALARM, RAMP, SWATCH, WAITING},
    hits::{Hits, Target},
    palette::{Palette, Role, STEPS},
    widget::{
        ends,
        scale::{Scale, Worse},
        wrap::joined,
    },
};

/// Columns between the two panels.
const BETWEEN: u16 = 2;
/// Smallest width at which a panel explains its figures.
const ROOMY: u16 = 56;
/// Fewest free lines in which maps over time are useful.
const FREE: u16 = 9;
/// Columns between a name and its meaning.
const GAP: usize = 2;
/// Runs of ranks named under a map.
const RUNS: usize = 3;
/// Most columns of a name.
const LABEL: usize = 12;
/// Columns of a panel outside of the map: borders, and a blank on each side.
const EDGES: usize = 4;

/// Both panels have the same layout, so a rank has the same place in both.
pub(super) enum Panels {
    Places(Places),
    Past(Past),
}

impl Panels {
    /// Chooses the layout for `width` columns and at most `height` lines, borders included.
    pub(super) fn plan(app: &App, width: u16, height: u16) -> Self {
        let (each, height) = inside(width, height);
        if app.maps.over_time {
            Self::Past(Past::plan(app, app.maps.zoom, each, height))
        } else {
            Self::Places(Places::plan(app, each, height))
        }
    }

    pub(super) fn height(&self) -> u16 {
        let lines = match self {
            Self::Places(places) => places.height(),
            Self::Past(past) => past.height(),
        };
        lines as u16 + 2
    }

    pub(super) fn draw(&self, app: &App, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
        let [left, right] = halves(area);
        let reported = app.job_view.reported();
        let [first, second] = app.mapped();
        // The number of further pages, and the key to them.
        let page = format!(" {} of {}, m ", app.maps.page(&reported) + 1, Maps::pages(&reported));
        match self {
            Self::Places(places) => {
                places.draw(app, first, "", left, buffer, hits);
                places.draw(app, second, &page, right, buffer, hits);
            }
            Self::Past(past) => {
                past.draw(app, first, "", left, buffer, hits);
                past.draw(app, second, &page, right, buffer, hits);
            }
        }
    }
}

/// The same quantities over time, in the lines that a tall screen leaves free. Keys and clicks act on the maps
/// above.
pub(super) struct FreeLines(Past);

impl FreeLines {
    pub(super) fn plan(app: &App, width: u16, height: u16) -> Option<Self> {
        let (each, lines) = inside(width, height);
        let is_useful = !app.maps.over_time && height >= FREE;
        is_useful.then(|| Self(Past::plan(app, Zoom::default(), each, lines)))
    }

    pub(super) fn draw(&self, app: &App, area: Rect, buffer: &mut Buffer) {
        let height = (self.0.height() as u16 + 2).min(area.height);
        for (metric, area) in app.mapped().into_iter().zip(halves(Rect { height, ..area })) {
            self.0.draw(app, metric, "", area, buffer, &mut Hits::default());
        }
    }
}

fn halves(area: Rect) -> [Rect; 2] {
    let parts = [Constraint::Fill(1), Constraint::Length(BETWEEN), Constraint::Fill(1)];
    let [left, _, right] = Layout::horizontal(parts).areas(area);
    [left, right]
}

/// Columns and lines inside each of two panels.
fn inside(width: u16, height: u16) -> (usize, usize) {
    let each = usize::from((width.saturating_sub(BETWEEN)) / 2).saturating_sub(EDGES);
    (each, usize::from(height).saturating_sub(2))
}

/// The content of a panel's frame.
struct Frame<'a> {
    metric: Metric,
    means: &'a str,
    scale: Option<&'a Scale>,
    /// Text after the worst rank, if it fits: the number of folded ranks.
    notes: Vec<String>,
    /// The text that replaces the figures, as much of it as fits.
    caption: Vec<String>,
    /// Text at the bottom right, if there is room.
    corner: &'a str,
}

/// Draws it, and returns the area inside.
fn framed(app: &App, frame: &Frame<'_>, area: Rect, buffer: &mut Buffer, hits: &mut Hits) -> Rect {
    let palette = app.palette;
    let metric = frame.metric;
    let corner = if area.width < ROOMY { "" } else { frame.corner };
    let legend = frame.scale.map(|scale| legend(scale, palette));
    let legend =
        legend.filter(|legend| metric.title().width() + legend.width() + EDGES < usize::from(area.width));
    let scale = legend.as_ref().map_or_else(String::new, Line::to_string);
    let means = if area.width < ROOMY { "" } else { frame.means.trim() };
    let columns = usize::from(area.width).saturating_sub(2);
    let ends::Title { name, about: means, .. } = ends::title(metric.title(), means, scale.trim(), columns);
    let mut block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(palette.of(Role::Faint))
        .title_top(Line::from(vec![
            Span::styled(name, palette.of(Role::Accent).patch(palette.of(Role::Strong))),
            Span::styled(means, palette.of(Role::Muted)),
        ]));
    if let Some(legend) = legend {
        block = block.title_top(legend.right_aligned());
    }
    let space =
        usize::from(area.width).saturating_sub(EDGES + corner.width() + usize::from(!corner.is_empty()));
    let caption = if frame.caption.is_empty() {
        caption(&app.job_view, metric, &frame.notes, space)
    } else {
        joined(frame.caption.clone(), space)
    };
    block = block.title_bottom(Line::styled(format!(" {caption} "), palette.of(Role::Muted)));
    if !corner.is_empty() {
        block = block.title_bottom(Line::styled(corner, palette.of(Role::Muted)).right_aligned());
    }
    let inner = block.inner(area);
    block.render(area, buffer);
    // A click on the title opens the list of quantities, as its key does.
    hits.put(Rect { height: 1, ..area }, Target::Do(Action::Pick(Choosing::Metric)));
    Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner }
}

/// The figures as text, so that no information is in colours only: as many as fit, the worst rank first.
fn caption(job_view: &JobView, metric: Metric, notes: &[String], width: usize) -> String {
    let mut parts = Vec::new();
    match (job_view.scale(metric), job_view.worst(metric)) {
        (Some(scale), Some((row, value))) => {
            if scale.is_bad(value) {
                let worst = if scale.worse == Worse::Low { "lowest" } else { "highest" };
                parts.push(format!("{worst} rank {} at {}", row.status.rank, figure::tenths(value)));
            }
            parts.extend(notes.iter().cloned());
            if job_view.is_frozen() {
                parts.push("last figures".to_owned());
            }
            parts.push(format!("median {} {}", figure::tenths(scale.median), metric.unit()));
        }
        _ if job_view.stall().is_some() => parts.extend(stall(job_view)),
        _ if metric == Metric::Bus && job_view.partly_seen.is_some() => {
            parts.push("not all ranks of a communicator are seen".to_owned());
        }
        _ => parts.push(job_view.headline.age.map_or_else(
            || "nothing timed yet".to_owned(),
            |age| format!("nothing new for {}", figure::age(age)),
        )),
    }
    joined(parts, width)
}

/// `480 ■■■■■■■■ 736`: the steps, and the values of the first and the last.
fn legend(scale: &Scale, palette: Palette) -> Line<'static> {
    let (first, last) = scale.ends();
    let muted = palette.of(Role::Muted);
    let mut spans = vec![Span::styled(format!(" {} ", figure::four_columns(first)), muted)];
    for (step, glyph) in RAMP.into_iter().enumerate().take(STEPS) {
        let text = if palette.has_colour() { SWATCH } else { glyph };
        spans.push(Span::styled(text.to_string(), palette.swatch(step)));
    }
    spans.push(Span::styled(format!(" {} ", figure::four_columns(last)), muted));
    spans.into()
}

/// The legend of the cells' signs in a hung job.
fn stall(job_view: &JobView) -> Option<String> {
    let ranks: Ranks = job_view.stall()?.ranks.iter().copied().collect();
    let waits = match job_view.waiting() {
        0 => String::new(),
        1 => format!("   {WAITING} 1 waits"),
        waiting => format!("   {WAITING} {} wait", figure::count(waiting as u64)),
    };
    Some(format!("{ALARM} {}{waits}", ranks.named(RUNS)))
}
