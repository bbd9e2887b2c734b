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
    keymap::{self, Binding},
    palette::Role,
    prompt::Kind,
    widget::ends,
};

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let note = match &app.note {
        Some(Note::Done(text)) => Line::styled(format!("{} {text}", glyph::GOOD), app.palette.of(Role::Good)),
        Some(Note::Failed(text)) => {
            Line::styled(format!("{} {text}", glyph::ALARM), app.palette.of(Role::Alarm))
        }
        None => Line::default(),
    };
    let keys = || {
        keymap::in_force(app.scope())
            .filter_map(|binding| Some((binding, binding.short?)))
            .filter(|(binding, _)| is_useful(binding, app))
    };
    let (views, others): (Vec<_>, Vec<_>) = keys().partition(|(binding, _)| page_of(binding).is_some());
    // Where not all fits, the other views are known by their numbers alone; on the first page by their names, if there is room.
    let whole = |keys: &[(&Binding, &str)]| {
        keys.iter().map(|(binding, short)| word(binding, short).width() + 3).sum::<usize>()
    };
    let room = usize::from(area.width);
    let names = whole(&views) + if app.page == Page::Overview { 0 } else { whole(&others) } <= room;
    let mut line = Line::default();
    for (binding, short) in &views {
        let here = page_of(binding) == Some(app.page);
        let text = if names || here { word(binding, short) } else { binding.keys[0].to_string() };
        let gap = if names { "   " } else { " " };
        let style = if here { app.palette.selected() } else { app.palette.of(Role::Muted) };
        let (key, rest) = text.split_at(binding.keys[0].to_string().len());
        let loud = app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong));
        line.push_span(Span::styled(key.to_owned(), if here { style } else { loud }));
        line.push_span(Span::styled(rest.to_owned(), style));
        line.push_span(Span::raw(gap));
    }
    if !names {
        line.push_span(Span::raw(" "));
    }
    let after = if names { "   " } else { "  " };
    for (binding, short) in &others {
        let key = binding.keys[0].to_string();
        let width = key.width() + short.width() + 1;
        if line.width() + width > usize::from(area.width) {
            continue;
        }
        line.push_span(Span::styled(key, app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong))));
        line.push_span(Span::styled(format!(" {short}{after}"), app.palette.of(Role::Muted)));
    }
    ends::draw(&line, &note, area, buffer);
}

fn word(binding: &Binding, short: &str) -> String {
    format!("{} {short}", binding.keys[0])
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
        | Action::Capture
        | Action::Report => app.standing() == Standing::Running,
        Action::Fold(_) | Action::NextOdd | Action::NextThread | Action::TurnNatives | Action::SaveFlame => {
            !app.stacks.rows().is_empty()
        }
        Action::Open(Kind::Filter) => {
            app.standing() == Standing::Running && matches!(app.page, Page::Overview | Page::Rank)
        }
        Action::OpenFile | Action::ExportFile | Action::PageOfFile => app.files.selected().is_some(),
        Action::Explain => match app.page {
            Page::Gemms => !app.products.shapes().is_empty(),
            Page::Hosts => app.hosts.selected().is_some_and(|host| !host.ranks.is_empty()),
            _ => !app.survey.findings.is_empty(),
        },
        _ => true,
    }
}
