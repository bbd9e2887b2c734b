//! Changes the shown job.

use xpu_client::nearest::nearest;
use xpu_model::job::Job;
use xpu_wire::id::JobName;

use crate::{
    action::Effect,
    app::{App, Stacks},
};

pub(super) fn next(app: &mut App) {
    app.settle();
    let names: Vec<_> = app.observed.jobs.iter().map(|job| job.name().clone()).collect();
    let shown = app.job().map(Job::name);
    let at = shown.and_then(|shown| names.iter().position(|name| name == shown));
    let next = at.map_or(0, |at| (at + 1) % names.len());
    match names.into_iter().nth(next) {
        Some(name) if at != Some(next) => {
            show(app, name);
        }
        _ => app.messages.done(only(app)),
    }
}

fn only(app: &App) -> String {
    app.job().map_or_else(|| "no job yet".to_owned(), |job| format!("{} is the only job", job.name()))
}

/// The job of this name, if there is one.
pub(super) fn choose(app: &mut App, name: JobName) -> Option<Effect> {
    if app.observed.jobs.get(&name).is_some() {
        show(app, name);
        return None;
    }
    let names: Vec<_> = app.observed.jobs.iter().map(|job| job.name().as_str()).collect();
    let there = match nearest(name.as_str(), names.iter().copied()) {
        Some(near) => format!("did you mean {near}?"),
        None if names.is_empty() => "there are no jobs".to_owned(),
        None => format!("there are {}", names.join(", ")),
    };
    app.messages.failed(format!("unknown job {name}: {there}"));
    None
}

fn show(app: &mut App, name: JobName) {
    app.selection.choose_job(name);
    app.stacks = Stacks::default();
}
