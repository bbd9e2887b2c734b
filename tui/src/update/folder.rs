//! Actions on the captures and recordings of the folder.

use crate::{
    action::{Action, Effect},
    app::{App, Note},
    file_loader::{Label, Loaded, Order, What},
    page::Page,
};

/// Requests the simulation of a capture that the screen has made. While the page of files is shown, it also
/// polls the folder, because any process may write to it.
pub(super) fn look(app: &mut App) -> Option<Effect> {
    if let Some(path) = app.files.unsimulated.take() {
        return Some(Effect::Files(Order::Simulate(path)));
    }
    let due = if app.page == Page::Captures { app.files.due(app.now()) } else { None };
    due.map(Effect::Files)
}

pub(crate) fn act(app: &mut App, action: Action) -> Option<Effect> {
    match action {
        Action::OpenFile => app.files.open().map(Effect::Files),
        Action::ExportFile => of_capture(app, "pftrace", Order::Export),
        Action::PageOfFile => of_capture(app, "html", Order::Page),
        _ => None,
    }
}

/// Takes what was read in the folder, or written to it.
pub(super) fn take(app: &mut App, loaded: Loaded) {
    match loaded {
        Loaded::Listed(listing) => app.files.listing = Some(listing),
        Loaded::Opened(path, summary) => app.files.came(path, summary),
        Loaded::Simulated(simulated) => app.files.simulated = simulated.map(|of| (app.now(), of)),
        Loaded::Written(Ok(path)) => app.messages.done(format!("saved {}", path.display())),
        Loaded::Written(Err(why)) => app.messages.failed(why),
    }
}

/// Sends an order about a capture. Only captures have the operations for a timeline or a report.
fn of_capture(app: &mut App, ending: &str, order: impl Fn(std::path::PathBuf) -> Order) -> Option<Effect> {
    let file = app.files.selected()?;
    let note = match &file.label {
        Err(why) => Note::Failed(format!("{}: {why}", file.path.display())),
        Ok(Label { what: What::Traces { .. }, .. }) => {
            let why = "has traces by PyTorch's profiler: ui.perfetto.dev opens its files";
            Note::Failed(format!("{} {why}", file.path.display()))
        }
        Ok(label) if !matches!(label.what, What::Capture { .. }) => {
            let why = "is a recording and has no single operations; c captures some steps with them";
            Note::Failed(format!("{} {why}", file.path.display()))
        }
        Ok(_) => {
            let order = order(file.path.clone());
            app.messages.done(format!("{} is being written", file.path.with_extension(ending).display()));
            return Some(Effect::Files(order));
        }
    };
    app.messages.set_note(note);
    None
}
