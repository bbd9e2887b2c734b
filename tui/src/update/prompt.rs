//! Lines being typed: the effect of each key, and of the complete line.

use xpu_client::filter::{self, Filter, Subject};
use xpu_model::job::Job;

use super::{time, update};
use crate::{
    action::Effect,
    app::App,
    prompt::{Edit, Kind, Prompt},
    prompt_command::{self, Names},
};

pub(super) fn open(app: &mut App, kind: Kind) {
    // On the help page, the line filters the entries.
    let searches = app.overlay.help.is_open() && kind == Kind::Filter;
    let kind = if searches { Kind::Search } else { kind };
    if !searches {
        app.overlay.help.close();
    }
    // The line starts with the active filter, which the user most likely wants to change.
    let text = match kind {
        Kind::Filter => app.listing.filter.as_ref().map_or("", Filter::text),
        Kind::Search => app.overlay.help.sought(),
        Kind::Command | Kind::Time => "",
    };
    app.overlay.prompt = Some(Prompt::new(kind, text));
}

pub(super) fn edit(app: &mut App, edit: &Edit) -> Option<Effect> {
    let mut prompt = app.overlay.prompt.take()?;
    match edit {
        // Nothing is left to delete, so the key closes the line.
        Edit::Erase if prompt.text().is_empty() => return cancel(app, prompt.kind),
        Edit::Cancel => return cancel(app, prompt.kind),
        Edit::Enter => return enter(app, prompt),
        Edit::Complete => {
            let kind = prompt.kind;
            prompt.complete(|before| known(app, kind, before));
        }
        edit => prompt.edit(edit, &app.overlay.lines),
    }
    // The effect of the text is visible at once. While the text is incomplete, the last complete filter is
    // kept.
    match prompt.kind {
        Kind::Filter => apply_filter(app, prompt.text(), false),
        Kind::Search => app.overlay.help.seek(prompt.text()),
        Kind::Command | Kind::Time => {}
    }
    app.overlay.prompt = Some(prompt);
    None
}

fn cancel(app: &mut App, kind: Kind) -> Option<Effect> {
    match kind {
        Kind::Filter => app.listing.filter = None,
        Kind::Search => app.overlay.help.seek(""),
        Kind::Command | Kind::Time => {}
    }
    None
}

/// Applies the filter. While it is being typed, a word that matches no host counts as the start of another
/// filter.
fn apply_filter(app: &mut App, text: &str, whole: bool) {
    if text.trim().is_empty() {
        app.listing.filter = None;
    } else if let Ok(filter) = Filter::read(text)
        && (!filter.is_word() || whole || is_somewhere(app, &filter))
    {
        app.listing.filter = Some(filter);
    }
}

fn is_somewhere(app: &App, filter: &Filter) -> bool {
    let Some(job) = app.job().map(Job::name) else { return false };
    let judge = filter.judge(std::iter::empty());
    let rows = app.job_view.rows().iter();
    rows.map(|row| Subject::of(&row.status, job)).any(|rank| judge.verdict(rank) == Some(true))
}

fn enter(app: &mut App, prompt: Prompt) -> Option<Effect> {
    let text = prompt.text().to_owned();
    match prompt.kind {
        Kind::Filter => {
            // The error is shown under the line, and the line stays open.
            if !text.trim().is_empty() && Filter::read(&text).is_err() {
                app.overlay.prompt = Some(prompt);
                return None;
            }
            apply_filter(app, &text, true);
            app.overlay.lines.keep(Kind::Filter, &text);
            None
        }
        Kind::Command => {
            if text.trim().is_empty() {
                return None;
            }
            let Ok(action) = prompt_command::read(&text) else {
                app.overlay.prompt = Some(prompt);
                return None;
            };
            app.overlay.lines.keep(Kind::Command, &text);
            update(app, action)
        }
        Kind::Time => time::go_to(app, &text),
        Kind::Search => {
            app.overlay.help.seek(&text);
            None
        }
    }
}

fn hosts(app: &App) -> Vec<&str> {
    let mut hosts: Vec<_> = app.job_view.rows().iter().map(|row| row.status.host.as_str()).collect();
    hosts.dedup();
    hosts
}

/// Completions of the word before the cursor.
fn known(app: &App, kind: Kind, before: &str) -> (usize, Vec<String>) {
    match kind {
        Kind::Filter => filter::complete(before, &hosts(app)),
        Kind::Command => {
            let jobs = app.observed.jobs.iter().map(|job| job.name().as_str()).collect();
            prompt_command::complete(before, &Names { hosts: hosts(app), jobs })
        }
        Kind::Time | Kind::Search => (0, Vec::new()),
    }
}
