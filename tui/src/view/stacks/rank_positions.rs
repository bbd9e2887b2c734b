//! The positions of ranks in the communicator: how many collectives they entered, and the call in which they
//! wait.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;

use super::super::{
    headline,
    panel::{self, Title},
};
use crate::{
    app::{App, Group, RankPositions},
    hits::{Hits, Target},
    palette::Role,
    report::in_call,
    widget::{wrap::cut, wrap::cut_at_word, wrap::wrapped},
    width::Breakpoint,
};

/// Runs of ranks in the first column.
const RUNS: usize = 3;

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    if area.height < 2 {
        return;
    }
    let shown = &app.stacks.rank_positions().only(app.job_view.matching().as_ref());
    let title = Title {
        name: "Where ranks are",
        about: if shown.size > 0 {
            format!("communicator {}, {}", shown.title, figure::counted(shown.size as usize, "rank", "ranks"))
        } else {
            String::new()
        },
        ..Title::default()
    };
    // A short list has a short frame.
    let height = if breakpoint == Breakpoint::Wide {
        area.height.min(shown.groups.len().max(1) as u16 + 7)
    } else {
        area.height
    };
    let inner = panel::draw(app.palette, breakpoint, title, Rect { height, ..area }, buffer);
    table(app, shown, inner, buffer, hits);
}

/// The groups of ranks, and their dependencies.
pub(in crate::view) fn table(
    app: &App,
    shown: &RankPositions,
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    let palette = app.palette;
    if shown.groups.is_empty() {
        let text = if shown.size > 0 {
            "none of the selected ranks is in it"
        } else {
            "no communicator is seen yet"
        };
        let text = wrapped(text, usize::from(area.width), 2);
        let lines: Vec<_> =
            text.into_iter().map(|text| Line::styled(text, palette.of(Role::Muted))).collect();
        headline::lines(&lines, area, buffer);
        return;
    }
    let width = usize::from(area.width);
    let ranks =
        shown.groups.iter().map(|group| group.ranks.brief(RUNS).width()).max().unwrap_or(0).clamp(5, 14);
    let digits = |of: fn(&Group) -> u64| {
        shown.groups.iter().map(|group| figure::count(of(group)).len()).max().unwrap_or(0).max(7)
    };
    let (enters, queues, ends) =
        (digits(|group| group.entered), digits(|group| group.enqueued), digits(|group| group.completed));
    let columns = |[rank, entered, enqueued, done, call]: [&str; 5]| {
        let rank = cut(rank, ranks);
        let figures = format!("{rank:<ranks$} {entered:>enters$} {enqueued:>queues$} {done:>ends$}  ");
        let call = cut_at_word(call, width.saturating_sub(figures.width()));
        cut(&format!("{figures}{call}"), width)
    };
    let mut lines = vec![Line::styled(
        columns(["rank", "entered", "queued", "done", "in call"]),
        palette.of(Role::Muted),
    )];
    let space = usize::from(area.height).saturating_sub(1 + usize::from(shown.waits().is_some()));
    let left = if shown.groups.len() > space { shown.groups.len() + 1 - space.max(1) } else { 0 };
    for (group, y) in shown.groups[..shown.groups.len() - left].iter().zip(area.y + 1..area.bottom()) {
        if let Some(first) = group.ranks.first() {
            hits.put(Rect { y, height: 1, ..area }, Target::Rank(first));
        }
        let Group { entered, enqueued, completed, .. } = *group;
        let text = columns([
            &group.ranks.brief(RUNS),
            &figure::count(entered),
            &figure::count(enqueued),
            &figure::count(completed),
            &in_call(group),
        ]);
        let role = if shown.is_behind(group) { Role::Warning } else { Role::Text };
        lines.push(Line::styled(text, palette.of(role)));
    }
    if left > 0 {
        lines.push(Line::styled(format!("and {left} more places"), palette.of(Role::Muted)));
    }
    if let Some((ahead, behind)) = shown.waits() {
        let word = if ahead.len() == 1 { "waits" } else { "wait" };
        let text = format!("{} {word} for {}", ahead.brief(RUNS), behind.brief(RUNS));
        lines.push(Line::styled(cut_at_word(&text, width), palette.of(Role::Strong)));
    }
    headline::lines(&lines, area, buffer);
}
