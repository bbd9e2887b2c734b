//! Why a key does nothing now, for the footer.

use crate::{
    action::Action,
    app::{App, ScreenState},
    key::Key,
    keymap::Scope,
    page::Page,
};

/// The reason; `None` if the key has an effect, or its action itself gives the reason.
pub(super) fn why(app: &mut App, action: &Action) -> Option<String> {
    match action {
        Action::Unbound(key) => Some(unbound(app, *key)),
        Action::Explain => {
            app.settle();
            app.page.view().unexplained(app).map(str::to_owned)
        }
        Action::Move(_) if app.overlay.is_clear() => {
            app.settle();
            unmoved(app)
        }
        Action::ToggleBranch | Action::NextOutlier | Action::NextThread | Action::ToggleNatives => {
            app.settle();
            let key = app.key("read-stacks");
            no_job(app)
                .or_else(|| says(app.stacks.rows().is_empty(), &format!("no stacks yet: {key} reads them")))
        }
        Action::OpenFile | Action::ExportFile | Action::PageOfFile => {
            says(app.files.selected().is_none(), "no capture or recording in this folder")
        }
        Action::ToggleCommunicators if app.page == Page::Collectives => {
            app.settle();
            no_job(app).or_else(|| says(app.communicators.total == 0, "no communicators yet"))
        }
        Action::Report
        | Action::SaveFlame
        | Action::AskStacks
        | Action::AskGpus
        | Action::FoldRanks
        | Action::ToggleMaps
        | Action::ToggleCommunicators => {
            app.settle();
            no_job(app)
        }
        Action::Close if app.page == Page::Overview && !app.overlay.help.is_open() => {
            let closes = app.overlay.picker.is_some()
                || (app.maps.over_time && app.maps.zoom.is_set())
                || app.selection.rank.is_some()
                || app.listing.filter.is_some();
            says(!closes, "nothing to clear")
        }
        _ => None,
    }
}

fn says(idle: bool, why: &str) -> Option<String> {
    idle.then(|| why.to_owned())
}

fn no_job(app: &App) -> Option<String> {
    says(app.screen_state() != ScreenState::Running, "no job yet")
}

/// Why there is nothing to move in.
fn unmoved(app: &App) -> Option<String> {
    let view = app.page.view();
    says(view.lines(app) == 0, view.about().empty)
}

/// For a key without an action here: the places where it has one.
fn unbound(app: &App, key: Key) -> String {
    let mut places: Vec<_> = app
        .keymap
        .all()
        .filter(|(_, keys)| keys.contains(&key))
        .map(|(binding, _)| binding.scope)
        .filter(|scope| !matches!(scope, Scope::Prompt | Scope::Picker | Scope::Help))
        .map(Scope::name)
        .collect();
    places.dedup();
    let help = app.key("help");
    match &places[..] {
        [] => format!("{key} does nothing here: {help} lists the keys"),
        places => format!("{key} works only on {}: {help} lists the keys", places.join(", ")),
    }
}
