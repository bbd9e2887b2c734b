//! What an action does to the app. Nothing is drawn here, and nothing outside is touched: that is an [`Effect`].
#![forbid(unsafe_code)]

use std::path::PathBuf;

use xpu_shared::{
    frame::{Body, Frame},
    id::JobName,
    unit::Moment,
};

use crate::{
    action::{Action, Effect, Motion},
    app::{App, Choice, Note, Overlay, Page, Sort},
    arrival::Arrival,
    figure,
};

/// Ranks that a page key moves by. Fixed, because how many fit is known only when drawing.
const PAGE: usize = 10;

pub fn update(app: &mut App, action: Action) -> Option<Effect> {
    if !matches!(action, Action::Time(_) | Action::Arrive(_)) {
        app.note = None;
    }
    match action {
        Action::Time(now) => {
            app.now = now;
            return app.stacks_due().map(|(job, ranks)| Effect::AskStacks { job, ranks, kept: true });
        }
        Action::Arrive(Arrival::Frame(frame)) => arrive(app, &frame),
        Action::Arrive(Arrival::Link(endpoint, link)) => app.roads.set(endpoint, link),
        Action::Saved(Ok(path)) => app.note = Some(Note::Done(format!("saved {}", path.display()))),
        Action::Saved(Err(why)) => app.note = Some(Note::Failed(why)),
        Action::Move(motion) => {
            select(app, motion);
            return (app.page == Page::Rank).then(|| watched(app));
        }
        Action::Inspect => {
            app.settle();
            // Who presses Enter with nothing selected wants to know about the rank that stands out.
            let odd = app.survey.odd.map(|odd| odd.rank(&app.survey));
            app.selected = app.selected.or(odd);
            if app.selected.is_none() {
                select(app, Motion::First);
            }
            app.selected?;
            app.page = Page::Rank;
            return Some(watched(app));
        }
        Action::SortNext => app.sort = app.sort.next(),
        Action::Reverse => app.sort = Sort { reversed: !app.sort.reversed, ..app.sort },
        Action::NextJob => next_job(app),
        Action::Help => {
            app.overlay = match app.overlay {
                Overlay::None => Overlay::Help,
                Overlay::Help => Overlay::None,
            }
        }
        Action::Close => match (app.overlay, app.page) {
            (Overlay::Help, _) => app.overlay = Overlay::None,
            (Overlay::None, Page::Rank) => {
                app.page = Page::Overview;
                return Some(Effect::WatchRank(None));
            }
            (Overlay::None, Page::Overview) => app.selected = None,
        },
        Action::Save => {
            app.settle();
            return Some(Effect::Save(picture_name(app.job().map(xpu_shared::job::Job::name), app.now)));
        }
        Action::Quit => return Some(Effect::Quit),
    }
    None
}

fn arrive(app: &mut App, frame: &Frame) {
    if let Some(came) = app.arrived.get_mut(&frame.host) {
        *came = app.now;
    } else {
        app.arrived.insert(frame.host.clone(), app.now);
    }
    match &frame.body {
        Body::Refusal(why) => app.warn(format!("{}: {why}", frame.host)),
        _ => app.jobs.fold(frame),
    }
}

fn watched(app: &App) -> Effect {
    let job = app.job().map(|job| job.name().clone());
    Effect::WatchRank(job.zip(app.selected))
}

/// The first motion selects the first rank listed (or the last), wherever it would go.
fn select(app: &mut App, motion: Motion) {
    app.settle();
    let survey = &app.survey;
    let Some(last) = survey.order.len().checked_sub(1) else { return };
    let row = app.selected.and_then(|rank| survey.row_of(rank));
    let at = row.and_then(|row| survey.order.iter().position(|&listed| listed == row));
    let to = match (at, motion) {
        (_, Motion::First) | (None, Motion::Down | Motion::PageDown) => 0,
        (_, Motion::Last) | (None, Motion::Up | Motion::PageUp) => last,
        (Some(at), Motion::Up) => at.saturating_sub(1),
        (Some(at), Motion::Down) => (at + 1).min(last),
        (Some(at), Motion::PageUp) => at.saturating_sub(PAGE),
        (Some(at), Motion::PageDown) => (at + PAGE).min(last),
    };
    app.selected = Some(survey.rows()[survey.order[to]].status.rank);
}

fn next_job(app: &mut App) {
    app.settle();
    let names: Vec<_> = app.jobs.iter().map(|job| job.name().clone()).collect();
    let shown = app.job().map(xpu_shared::job::Job::name);
    let at = shown.and_then(|shown| names.iter().position(|name| name == shown));
    let next = at.map_or(0, |at| (at + 1) % names.len());
    match names.into_iter().nth(next) {
        Some(name) if at != Some(next) => {
            app.choice = Choice::Named(name);
            app.selected = None;
        }
        _ => app.note = Some(Note::Done("there is no other job".to_owned())),
    }
}

/// `xpu-top-llama-70b-20270115T080000Z.svg`
fn picture_name(job: Option<&JobName>, now: Moment) -> PathBuf {
    // The name came over the network: cleaned, it is no path.
    let job = job.map(|name| format!("{}-", JobName::cleaned(name.as_str()))).unwrap_or_default();
    PathBuf::from(format!("xpu-top-{job}{}.svg", figure::stamp(now)))
}
