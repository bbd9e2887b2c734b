//! Useful keys, and the effect of the last one.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Clear, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    action::{Action, Choosing, Control},
    app::{App, Note, ScreenState},
    glyph,
    hits::{Hits, Target},
    keymap::Binding,
    page::Page,
    palette::Role,
    prompt::Kind,
    widget::{ends, wrap::cut_at_word},
};

/// Columns that are kept for other keys if the overview has the full names of the views.
const OTHERS: usize = 24;

/// The names of the views.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Names {
    Full,
    Short,
    /// Only the present view has a name, because there is no room for more.
    Digits,
}

impl Names {
    /// The form of the names that fits: in full if all keys of the page fit next to them. On the overview,
    /// the names take precedence, because it leads to the other views.
    fn fitting(views: &[Offer], others: usize, width: usize) -> Self {
        let taken = |names: Self| {
            let gap = names.gap().len();
            views.iter().map(|offer| offer.named(names, false).width() + gap).sum::<usize>()
        };
        if taken(Self::Full) + others <= width {
            Self::Full
        } else if taken(Self::Short) <= width {
            Self::Short
        } else {
            Self::Digits
        }
    }

    fn gap(self) -> &'static str {
        if self == Self::Full { "   " } else { " " }
    }
}

/// Draws the keys, and next to them the effect of the last one. If the effect does not fit, it is drawn above
/// them, on the last line of `above`, so that the names of the views stay.
pub(super) fn draw(app: &App, area: Rect, above: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let width = usize::from(area.width);
    let keys = app.keymap.in_force(app.scope()).filter_map(|(binding, keys)| {
        let (key, short) = (keys.first()?.to_string(), word(binding, app)?);
        is_useful(binding, app).then_some(Offer { binding, key, short })
    });
    let (views, mut others): (Vec<_>, Vec<_>) = keys.partition(|offer| page_of(offer.binding).is_some());
    // For a hung job, the report takes precedence over choosing ranks.
    if app.page == Page::Stacks {
        others.sort_by_key(|offer| matches!(offer.binding.action, Action::Open(Kind::Filter)));
    }
    let keys: usize = others.iter().map(|offer| offer.named(Names::Full, false).width() + 3).sum();
    let names = Names::fitting(&views, if app.page == Page::Overview { OTHERS } else { keys }, width);
    let mut line = Line::default();
    for offer in &views {
        let here = page_of(offer.binding) == Some(app.page);
        let text = offer.named(names, here);
        // The blanks on both sides belong to the target, because a digit alone is small.
        let (x, width) = ((line.width() as u16).saturating_sub(1), text.width() as u16 + 2);
        hits.put(within(area, x, width), Target::Do(offer.binding.action.clone()));
        let style = if here { app.palette.selected() } else { app.palette.of(Role::Muted) };
        let (key, rest) = text.split_at(offer.key.len());
        let loud = app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong));
        line.push_span(Span::styled(key.to_owned(), if here { style } else { loud }));
        line.push_span(Span::styled(rest.to_owned(), style));
        line.push_span(Span::raw(names.gap()));
    }
    if names != Names::Full {
        line.push_span(Span::raw(" "));
    }
    let after = if names == Names::Full { "   " } else { "  " };
    let mut note = note(app, width);
    if line.width() + note.width() > width {
        let place = Rect { y: above.bottom().saturating_sub(1), height: 1.min(above.height), ..above };
        Clear.render(place, buffer);
        buffer.set_line(place.x, place.y, &note, place.width);
        note = Line::default();
    }
    let space = width.saturating_sub(note.width() + usize::from(note.width() > 0));
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

/// The effect of the last key, within this width.
fn note(app: &App, most: usize) -> Line<'static> {
    let (sign, text, role) = match app.messages.note() {
        Some(Note::Done(text)) => (glyph::GOOD, text, Role::Good),
        Some(Note::Failed(text)) => (glyph::ALARM, text, Role::Alarm),
        None => return Line::default(),
    };
    Line::styled(format!("{sign} {}", cut_at_word(text, most.saturating_sub(2))), app.palette.of(role))
}

/// A key's label.
fn word(binding: &Binding, app: &App) -> Option<&'static str> {
    match binding.action {
        Action::Open(Kind::Filter) if app.overlay.help.is_open() => Some("find"),
        // In help, this key closes help.
        Action::Quit if app.overlay.help.is_open() => Some("close"),
        _ => binding.short,
    }
}

/// A part of the line, with its limit.
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
    fn named(&self, names: Names, here: bool) -> String {
        match (names, page_of(self.binding)) {
            (Names::Short, Some(page)) => format!("{} {}", self.key, page.view().about().short),
            (Names::Digits, Some(_)) if !here => self.key.clone(),
            _ => format!("{} {}", self.key, self.short),
        }
    }
}

/// The view to which a digit leads.
fn page_of(binding: &Binding) -> Option<Page> {
    match binding.action {
        Action::Go(page) => Some(page),
        Action::Inspect if binding.short.is_some() => Some(Page::Rank),
        _ => None,
    }
}

/// A key that would do nothing now is left out.
fn is_useful(binding: &Binding, app: &App) -> bool {
    match binding.action {
        Action::NextJob | Action::Pick(Choosing::Job) => {
            app.observed.jobs.iter().nth(1).is_some() && !app.overlay.help.is_open()
        }
        // These pages also show why there is no job.
        Action::Go(page) if page == Page::Overview || !page.view().needs_job() => true,
        Action::Capture => app.screen_state() == ScreenState::Running && !app.is_past(),
        Action::Control(Control::Record) => app.screen_state() == ScreenState::Running && !app.is_replay(),
        Action::Move(_)
        | Action::Control(_)
        | Action::Go(_)
        | Action::Inspect
        | Action::Pick(Choosing::Metric | Choosing::Sort)
        | Action::ToggleMaps
        | Action::FoldRanks
        | Action::Pin
        | Action::Reverse
        | Action::Report => app.screen_state() == ScreenState::Running,
        Action::ToggleBranch
        | Action::NextOutlier
        | Action::NextThread
        | Action::ToggleNatives
        | Action::SaveFlame => !app.stacks.rows().is_empty(),
        Action::Open(Kind::Command) => app.page == Page::Overview,
        Action::Open(Kind::Filter) if app.overlay.help.is_open() => true,
        Action::Open(Kind::Filter) => {
            app.screen_state() == ScreenState::Running && app.page.view().offers_filter()
        }
        Action::ToggleCommunicators => app.communicators.has_more() || app.communicators.every,
        Action::OpenFile | Action::ExportFile | Action::PageOfFile => app.files.selected().is_some(),
        Action::Explain => app.page.view().unexplained(app).is_none(),
        _ => true,
    }
}
