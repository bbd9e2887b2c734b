//! Effects of time: a hung job is shown by itself, with its stacks.

use xpu_client::live::WatchedRanks;

use crate::{
    action::{Action, Effect, Reading},
    app::{App, Note, Overlay, Page, Watched},
};

pub(super) fn look(app: &mut App) -> Option<Effect> {
    if let Some(incident) = &app.incident
        && app.alarmed != Some(incident.since)
    {
        app.alarmed = Some(incident.since);
        // Another page is not replaced: the first line of every view shows it.
        if app.page == Page::Overview && app.overlay == Overlay::None && app.picker.is_none() {
            app.page = Page::Stacks;
        }
    }
    let (job, ranks) = app.stacks_due()?;
    app.stacks.ask(app.now);
    Some(Effect::AskStacks { job, ranks, reading: Reading::Kept })
}

/// Asks for the details of those that are looked at now, and of no other any more.
pub(super) fn follow(app: &mut App) -> Option<Effect> {
    let wanted = app.looked_at();
    let WatchedRanks { job, ranks } = wanted.clone().unwrap_or_default();
    if (&app.watched.job, &app.watched.ranks) == (&job, &ranks) {
        return None;
    }
    app.jobs.keep_details(|of, rank| *of == job && ranks.contains(&rank));
    app.watched = Watched { job, ranks, since: app.now };
    Some(Effect::WatchRanks(wanted))
}

/// Opening the stacks page without stacks reads them.
pub(super) fn visit(app: &mut App) -> Option<Effect> {
    let has_some = app.job()?.stacks().next().is_some() || app.stacks.was_asked();
    if has_some { None } else { ask(app) }
}

/// Has them read now, whatever was read before.
pub(super) fn ask(app: &mut App) -> Option<Effect> {
    let job = app.job()?.name().clone();
    let is_stuck = app.job_view.standstill().is_some();
    app.stacks.ask(app.now);
    let reading = if is_stuck { Reading::Natively } else { Reading::Running };
    Some(Effect::AskStacks { job, ranks: Vec::new(), reading })
}

/// What a key of the stacks page asks for.
pub(super) fn read(app: &mut App, action: &Action) -> Option<Effect> {
    if matches!(action, Action::AskGpus) { ask_gpus(app) } else { ask(app) }
}

/// The kernels on the GPUs, of a job that hangs, at the second request: reading them ends the ranks.
fn ask_gpus(app: &mut App) -> Option<Effect> {
    let job = app.job()?.name().clone();
    if app.is_past() || app.is_replay() {
        app.note = Some(Note::Failed("the past has no GPUs to read".to_owned()));
        return None;
    }
    if app.job_view.standstill().is_none() {
        app.note = Some(Note::Failed("the job does not hang: reading its GPUs would end it".to_owned()));
        return None;
    }
    if !app.stacks.confirms_gpus(app.now) {
        let what = "U again, after a second, ends all ranks to name the kernels on their GPUs (job started with run --gpu-core)";
        app.note = Some(Note::Failed(what.to_owned()));
        return None;
    }
    app.note = None;
    app.stacks.ask_with_gpus(app.now);
    Some(Effect::AskStacks { job, ranks: Vec::new(), reading: Reading::Gpus })
}
