//! The keys worth knowing, and what the last one did.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};

use crate::{
    action::Action,
    app::{App, Note, Overlay, Standing},
    glyph,
    keymap::{self, Binding},
    palette::Role,
    widget::ends,
};

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    let mut keys: Vec<Span<'_>> = Vec::new();
    for (binding, short) in
        keymap::in_force(app.scope()).filter_map(|binding| Some((binding, binding.short?)))
    {
        if is_useful(binding, app) {
            let key = binding.keys[0].to_string();
            keys.push(Span::styled(key, app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong))));
            keys.push(Span::styled(format!(" {short}   "), app.palette.of(Role::Muted)));
        }
    }
    let note = match &app.note {
        Some(Note::Done(text)) => Line::styled(format!("{} {text}", glyph::GOOD), app.palette.of(Role::Good)),
        Some(Note::Failed(text)) => {
            Line::styled(format!("{} {text}", glyph::ALARM), app.palette.of(Role::Alarm))
        }
        None => Line::default(),
    };
    ends::draw(&keys.into(), &note, area, buffer);
}

/// A key that would do nothing now is not offered.
fn is_useful(binding: &Binding, app: &App) -> bool {
    match binding.action {
        Action::NextJob => app.jobs.iter().nth(1).is_some() && app.overlay == Overlay::None,
        Action::Move(_) | Action::Inspect | Action::SortNext | Action::Reverse => {
            app.standing() == Standing::Running
        }
        _ => true,
    }
}
