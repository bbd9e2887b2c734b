//! All findings of a recording, before the play position and after it.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;

use crate::{
    app::App,
    palette::Role,
    playback::{Mark, Of, Playback},
    view::{
        headline,
        panel::{self, Title, window},
    },
    widget::wrap::cut_at_word,
    width::Breakpoint,
};

pub(super) fn draw(app: &App, playback: &Playback, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let name = match playback.of {
        Of::File => "Incidents of the recording",
        Of::Live => "Incidents of the last minutes",
    };
    let searched = figure::time_of_day(playback.searched);
    let is_searched = playback.searched >= playback.span.last;
    let right = if is_searched { String::new() } else { format!("searched up to {searched}") };
    let title = Title { name, about: "in order, UTC".to_owned(), right };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let marks = &playback.marks;
    if marks.is_empty() {
        let text =
            if is_searched { "none".to_owned() } else { format!("none up to {searched}; still searching") };
        buffer.set_line(inner.x, inner.y, &Line::styled(text, app.palette.of(Role::Muted)), inner.width);
        return;
    }
    // Entries next to the play position stay visible.
    let passed = marks.iter().filter(|mark| mark.at <= playback.position).count();
    let shown = window(Some(passed.saturating_sub(1)), marks.len(), usize::from(inner.height));
    for (index, y) in shown.zip(inner.y..inner.bottom()) {
        let is_later = index >= passed;
        buffer.set_line(
            inner.x,
            y,
            &line(app, &marks[index], is_later, usize::from(inner.width)),
            inner.width,
        );
    }
}

fn line(app: &App, Mark { at, job, finding }: &Mark, is_later: bool, width: usize) -> Line<'static> {
    let muted = app.palette.of(Role::Muted);
    let (sign, role) = headline::emphasis(finding);
    let time = format!("{}  ", figure::time_of_day(*at));
    let word = if is_later { "later  " } else { "began  " };
    let head = format!("{sign} {word}");
    let shown = app.job().filter(|shown| shown.name() == job);
    let of = if shown.is_some() { String::new() } else { format!("job {job}: ") };
    let text = format!("{of}{}", finding.headline(shown));
    let text = cut_at_word(&text, width.saturating_sub(time.width() + head.width()));
    let style = if is_later { muted } else { app.palette.of(role) };
    let words = if is_later { muted } else { app.palette.of(Role::Text) };
    Line::from(vec![Span::styled(time, muted), Span::styled(head, style), Span::styled(text, words)])
}
