//! The keys worth knowing, and what the last one did.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    action::Action,
    app::{App, Note, Overlay, Page, Standing},
    glyph,
    hits::{Hits, Target},
    keymap::Binding,
    palette::Role,
    prompt::Kind,
    replay::Control,
    widget::{ends, wrap::cut_at_word},
};

/// Columns that the numbers of the views have whatever the last key did.
const KEYS: usize = 28;

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let width = usize::from(area.width);
    let note = note(app, width.saturating_sub(KEYS).max(width / 2));
    // The last key's effect is shown beside the keys, never in their place.
    let taken = note.width() + usize::from(note.width() > 0);
    let space = width.saturating_sub(taken);
    let keys = app.keymap.in_force(app.scope()).filter_map(|(binding, keys)| {
        let (key, short) = (keys.first()?.to_string(), word(binding, app)?);
        is_useful(binding, app).then_some(Offer { binding, key, short })
    });
    let (views, mut others): (Vec<_>, Vec<_>) = keys.partition(|offer| page_of(offer.binding).is_some());
    // Of a job that hangs the report goes before a choice of ranks.
    if app.page == Page::Stacks {
        others.sort_by_key(|offer| matches!(offer.binding.action, Action::Open(Kind::Filter)));
    }
    // If not all fits, the other views have only their numbers; on the first page their names, if they fit.
    let whole = |offers: &[Offer]| offers.iter().map(|offer| offer.word().width() + 3).sum::<usize>();
    let names = whole(&views) + if app.page == Page::Overview { 0 } else { whole(&others) } <= space;
    let mut line = Line::default();
    for offer in &views {
        let here = page_of(offer.binding) == Some(app.page);
        let text = if names || here { offer.word() } else { offer.key.clone() };
        // The blanks on both sides belong to it: a number alone is small for a hand.
        let (x, width) = ((line.width() as u16).saturating_sub(1), text.width() as u16 + 2);
        hits.put(within(area, x, width), Target::Do(offer.binding.action.clone()));
        let gap = if names { "   " } else { " " };
        let style = if here { app.palette.selected() } else { app.palette.of(Role::Muted) };
        let (key, rest) = text.split_at(offer.key.len());
        let loud = app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong));
        line.push_span(Span::styled(key.to_owned(), if here { style } else { loud }));
        line.push_span(Span::styled(rest.to_owned(), style));
        line.push_span(Span::raw(gap));
    }
    if !names {
        line.push_span(Span::raw(" "));
    }
    let after = if names { "   " } else { "  " };
    for offer in others {
        let Offer { key, short, .. } = &offer;
        let width = key.width() + short.width() + 1;
        if line.width() + width > space {
            continue;
        }
        hits.put(within(area, line.width() as u16, width as u16), Target::Do(offer.binding.action.clone()));
        line.push_span(Span::styled(
            key.clone(),
            app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong)),
        ));
        line.push_span(Span::styled(format!(" {short}{after}"), app.palette.of(Role::Muted)));
    }
    ends::draw(&line, &note, area, buffer);
}

/// The last key's effect, within this width.
fn note(app: &App, most: usize) -> Line<'static> {
    let (sign, text, role) = match &app.note {
        Some(Note::Done(text)) => (glyph::GOOD, text, Role::Good),
        Some(Note::Failed(text)) => (glyph::ALARM, text, Role::Alarm),
        None => return Line::default(),
    };
    Line::styled(format!("{sign} {}", cut_at_word(text, most.saturating_sub(2))), app.palette.of(role))
}

/// A key's label.
fn word(binding: &Binding, app: &App) -> Option<&'static str> {
    match binding.action {
        Action::Open(Kind::Filter) if app.overlay == Overlay::Help => Some("find"),
        _ => binding.short,
    }
}

/// A part of the line that may not reach beyond it.
fn within(area: Rect, x: u16, width: u16) -> Rect {
    Rect { x: area.x + x, width, height: 1, ..area }.intersection(area)
}

/// A key and its label.
struct Offer {
    binding: &'static Binding,
    key: String,
    short: &'static str,
}

impl Offer {
    fn word(&self) -> String {
        format!("{} {}", self.key, self.short)
    }
}

/// The view a key leads to by its number.
fn page_of(binding: &Binding) -> Option<Page> {
    match binding.action {
        Action::Go(page) => Some(page),
        Action::Inspect if binding.short.is_some() => Some(Page::Rank),
        _ => None,
    }
}

/// A key that would do nothing now is not offered.
fn is_useful(binding: &Binding, app: &App) -> bool {
    match binding.action {
        Action::NextJob => app.jobs.iter().nth(1).is_some() && app.overlay == Overlay::None,
        // These give the reason for a missing job, too.
        Action::Go(Page::Overview | Page::Captures | Page::Hosts) => true,
        Action::Capture => app.standing() == Standing::Running && !app.is_past(),
        Action::Control(Control::Record) => app.standing() == Standing::Running && !app.is_replay(),
        Action::Move(_)
        | Action::Control(_)
        | Action::Go(_)
        | Action::Inspect
        | Action::NextMetric
        | Action::PreviousMetric
        | Action::TurnMaps
        | Action::FoldRanks
        | Action::Pin
        | Action::SortNext
        | Action::Reverse
        | Action::Report => app.standing() == Standing::Running,
        Action::Fold(_)
        | Action::NextOutlier
        | Action::NextThread
        | Action::TurnNatives
        | Action::SaveFlame => !app.stacks.rows().is_empty(),
        Action::Open(Kind::Command) => app.page == Page::Overview,
        Action::Open(Kind::Filter) if app.overlay == Overlay::Help => true,
        Action::Open(Kind::Filter) => {
            app.standing() == Standing::Running
                && matches!(app.page, Page::Overview | Page::Rank | Page::Stacks | Page::Collectives)
        }
        Action::OpenFile | Action::ExportFile | Action::PageOfFile => app.files.selected().is_some(),
        Action::Explain => match app.page {
            Page::Gemms => !app.gemms.shapes().is_empty(),
            Page::Hosts => app.hosts.selected().is_some_and(|host| !host.ranks.is_empty()),
            _ => !app.job_view.findings.is_empty(),
        },
        _ => true,
    }
}
