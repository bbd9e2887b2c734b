//! The effect of each key on an open list to choose from.

use super::update;
use crate::{
    action::{Action, Choosing, Effect},
    app::App,
};

pub(super) fn open(app: &mut App, of: Choosing) {
    app.settle();
    match app.choices(of) {
        Ok(picker) => app.overlay.picker = Some(picker),
        Err(why) => app.messages.failed(why),
    }
}

pub(super) fn jump(app: &mut App, letter: char) {
    let found = app.overlay.picker.as_mut().is_none_or(|picker| picker.jump(letter));
    if !found {
        app.messages.failed(format!("no line begins with {letter}"));
    }
}

/// Applies this line.
pub(super) fn choose(app: &mut App, line: Option<usize>) -> Option<Effect> {
    let picker = app.overlay.picker.take()?;
    let action = picker.action(line.unwrap_or_else(|| picker.at()))?;
    update(app, action)
}

/// Whether the open list handles the action.
pub(super) fn takes(app: &mut App, action: &Action) -> bool {
    let Some(picker) = &mut app.overlay.picker else { return false };
    match action {
        Action::Move(motion) => picker.travel(*motion),
        Action::Close => app.overlay.picker = None,
        _ => return false,
    }
    true
}
