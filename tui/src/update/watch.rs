//! Effects of time: the screen opens the stacks of a hung job by itself.

use xpu_client::live::WatchedRanks;

use crate::{
    action::{Action, Effect, Reading},
    app::{App, Watched},
    page::Page,
};

pub(super) fn look(app: &mut App) -> Option<Effect> {
    if let Some(incident) = app.observed.incident.as_mut().filter(|incident| !incident.has_alarmed) {
        incident.has_alarmed = true;
        // Other pages are not replaced, because the first line of every view shows the hang anyway.
        if app.page == Page::Overview && app.overlay.is_clear() {
            app.page = Page::Stacks;
        }
    }
    let (job, ranks) = app.stacks_due()?;
    app.stacks.ask(app.now());
    Some(Effect::AskStacks { job, ranks, reading: Reading::Kept })
}

/// Subscribes to the details of the shown ranks, and of no others.
pub(crate) fn follow(app: &mut App) -> Option<Effect> {
    let wanted = app.looked_at();
    let WatchedRanks { job, ranks } = wanted.clone().unwrap_or_default();
    if (&app.watched.job, &app.watched.ranks) == (&job, &ranks) {
        return None;
    }
    app.observed.jobs.keep_details(|of, rank| *of == job && ranks.contains(&rank));
    app.watched = Watched { job, ranks, since: app.now() };
    Some(Effect::WatchRanks(wanted))
}

/// Opening the stacks page requests stacks if there are none.
pub(crate) fn visit(app: &mut App) -> Option<Effect> {
    let has_some = app.job()?.stacks().next().is_some() || app.stacks.was_asked();
    if has_some { None } else { ask(app) }
}

/// Requests stacks now, even if they were read before.
pub(super) fn ask(app: &mut App) -> Option<Effect> {
    let job = app.job()?.name().clone();
    let is_stuck = app.job_view.stall().is_some();
    app.stacks.ask(app.now());
    let reading = if is_stuck { Reading::Natively } else { Reading::Running };
    Some(Effect::AskStacks { job, ranks: Vec::new(), reading })
}

/// The request of a key on the stacks page.
pub(super) fn read(app: &mut App, action: &Action) -> Option<Effect> {
    if matches!(action, Action::AskGpus) { ask_gpus(app) } else { ask(app) }
}

/// Requests the kernels on the GPUs of a hung job, at the second press, because reading them ends the ranks.
fn ask_gpus(app: &mut App) -> Option<Effect> {
    let job = app.job()?.name().clone();
    if app.is_past() || app.is_replay() {
        app.messages.failed("GPUs can be read only live");
        return None;
    }
    if app.job_view.stall().is_none() {
        app.messages.failed("the job does not hang: reading its GPUs would end it");
        return None;
    }
    if !app.stacks.confirms_gpus(app.now()) {
        let what =
            "press U again after a second to name the kernels; this ends all ranks (needs run --gpu-core)";
        app.messages.failed(what);
        return None;
    }
    app.messages.clear_note();
    app.stacks.ask_with_gpus(app.now());
    Some(Effect::AskStacks { job, ranks: Vec::new(), reading: Reading::Gpus })
}
