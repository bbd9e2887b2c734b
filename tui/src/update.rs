//! Applies an action to the app. It draws nothing; anything outside of the app is an [`Effect`].
#![forbid(unsafe_code)]

pub(crate) mod folder;
pub(crate) mod go;
mod idle;
mod job;
mod picker;
mod prompt;
mod save;
mod time;
pub(crate) mod watch;

use xpu_client::arrival::Arrival;
use xpu_wire::{
    frame::{Body, Frame, History},
    unit::Moment,
};

use crate::{
    action::{Action, Effect, Motion, ZoomAction},
    app::{App, Fold, Metric},
};

/// Whether no key caused the action, so that the note on the screen stays.
fn comes_by_itself(action: &Action) -> bool {
    matches!(
        action,
        Action::Time(_)
            | Action::Arrive(_)
            | Action::Show(..)
            | Action::Reach(_)
            | Action::Found(..)
            | Action::Recorded(_)
            | Action::Captured(_)
            | Action::Traced(_)
            | Action::Loaded(_)
    )
}

pub fn update(app: &mut App, action: Action) -> Option<Effect> {
    if !comes_by_itself(&action) {
        app.messages.clear_note();
    }
    if let Some(why) = idle::why(app, &action) {
        app.messages.failed(why);
        return None;
    }
    if picker::takes(app, &action) {
        return None;
    }
    match action {
        Action::Time(now) => return time_is(app, now),
        Action::Arrive(arrival) if app.put_aside(&arrival) => {}
        Action::Show(at, frame) => {
            app.observed.now = at;
            show(app, &frame);
        }
        Action::Reach(moment) => {
            app.reach(moment);
            return watch::look(app);
        }
        Action::Rewind => app.forget(),
        Action::Ended => {
            if let Some(playback) = app.playback_mut() {
                playback.paused = true;
            }
        }
        Action::GoLive => app.go_live(),
        Action::Found(marks, searched) => app.found(marks, searched),
        Action::Control(what) => return time::control(app, what),
        Action::Recorded(state) => app.files.recording = state,
        Action::Captured(state) => app.captured(state),
        Action::Traced(state) => app.traced(state),
        Action::Loaded(loaded) => folder::take(app, loaded),
        Action::OpenFile | Action::ExportFile | Action::PageOfFile => return folder::act(app, action),
        Action::Capture => return Some(Effect::Capture(None)),
        Action::Kineto => return Some(Effect::Kineto),
        Action::CaptureOf(wanted) => return Some(Effect::Capture(Some(wanted))),
        Action::Dress(theme) => app.palette = app.palette.with_theme(theme),
        Action::ShowMetric(metric) => show_metric(app, metric),
        Action::Filter(filter) => app.listing.filter = filter.map(|filter| *filter),
        Action::SelectRank(rank) => app.selection.rank = Some(rank),
        Action::InspectRank(rank) => return go::to_rank(app, rank),
        Action::ChooseJob(name) => return job::choose(app, name),
        Action::GoTo(text) => return time::go_to(app, &text),
        Action::SaveTo(path) => return save::to(app, path),
        Action::Line(line) if app.overlay.picker.is_some() => return picker::choose(app, Some(line)),
        Action::Line(line) => return go::line(app, line),
        Action::SortBy(sort) => app.listing.sort = sort,
        Action::Arrive(Arrival::Frame(frame)) => arrive_now(app, &frame),
        Action::Arrive(Arrival::Link(endpoint, link)) => {
            app.connections.set(endpoint, link, app.now());
            app.hosts.look_again();
        }
        Action::Arrive(Arrival::Name(endpoint, name)) => app.connections.call(endpoint, name),
        Action::Saved(Ok(path)) => app.messages.done(format!("saved {}", path.display())),
        Action::Saved(Err(why)) => app.messages.failed(why),
        Action::Copied(Ok(path)) => {
            app.messages.done(format!("report copied and saved as {}", path.display()));
        }
        Action::Copied(Err(why)) => app.messages.failed(format!("report copied, {why}")),
        Action::Open(kind) => prompt::open(app, kind),
        Action::Edit(edit) => return prompt::edit(app, &edit),
        Action::Move(motion) => return travel(app, motion),
        Action::Go(page) => return go::to(app, page),
        Action::Inspect => return go::inspect(app),
        Action::Explain => return go::explain(app),
        Action::ToggleBranch | Action::NextOutlier | Action::NextThread => in_stacks(app, &action),
        Action::ToggleNatives => app.stacks.toggle_natives(),
        Action::AskStacks | Action::AskGpus => return watch::read(app, &action),
        Action::NoStacks(why) => app.stacks.refuse(why),
        Action::FoldRanks => fold(app),
        Action::Pin => pin(app),
        Action::ToggleMaps => app.maps.over_time = !app.maps.over_time,
        Action::Zoom(what) => zoom(app, what),
        Action::ToggleCommunicators => return go::communicators(app),
        Action::ShowCommunicator(id) => return go::to_communicator(app, id),
        Action::SaveFlame => return save::flame(app),
        Action::Report => return save::report(app),
        Action::SortColumn(column) => app.page.view().sort(app, column),
        Action::Pick(of) => picker::open(app, of),
        Action::Choose => return picker::choose(app, None),
        Action::Jump(letter) => picker::jump(app, letter),
        Action::Unbound(_) => {}
        Action::Reverse => app.page.view().reverse(app),
        Action::NextJob => job::next(app),
        Action::Help => app.overlay.help.turn(),
        Action::Close => return close(app),
        Action::Save => return Some(save::picture(app)),
        Action::Suspend => return Some(Effect::Suspend),
        Action::Redraw => return Some(Effect::Redraw),
        Action::Quit => return Some(Effect::Quit),
    }
    None
}

/// A recording has its own time, and accepts no requests.
fn time_is(app: &mut App, now: Moment) -> Option<Effect> {
    if app.is_past() {
        app.set_present_time(now);
        return watch::follow(app).or_else(|| folder::look(app));
    }
    app.observed.now = now;
    watch::look(app).or_else(|| watch::follow(app)).or_else(|| folder::look(app))
}

/// Zooms. Maps of the present have no time range.
fn zoom(app: &mut App, what: ZoomAction) {
    if app.maps.over_time {
        app.maps.zoom.act(what, app.history.known());
    } else {
        let text = format!("this key zooms the heatmaps over time; {} shows them", app.key("over-time"));
        app.messages.failed(text);
    }
}

/// Undoes the latest choice first.
fn close(app: &mut App) -> Option<Effect> {
    if app.overlay.help.is_open() {
        app.overlay.help.undo();
        return None;
    }
    app.page.view().close(app)
}

/// Takes a live frame. Frames arrive one by one, so the work is also done in parts.
fn arrive_now(app: &mut App, frame: &Frame) {
    if let Body::History(history) = &frame.body {
        return retrace(app, history);
    }
    arrive(app, frame);
    app.prepare(frame);
}

/// A frame of a recording.
fn show(app: &mut App, frame: &Frame) {
    match &frame.body {
        Body::History(history) => retrace(app, history),
        _ => arrive(app, frame),
    }
}

/// Folds history as if it had been watched live: its findings are kept.
fn retrace(app: &mut App, history: &History) {
    let (now, mut looked) = (app.now(), Moment::default());
    for frame in history.frames.frames() {
        app.observed.now = frame.now.min(now);
        if app.now().since(looked) >= app.between_settlings() {
            looked = app.now();
            app.settle();
        }
        arrive(app, &frame);
    }
    app.observed.now = now;
}

fn arrive(app: &mut App, frame: &Frame) {
    app.observed.take(frame);
    match &frame.body {
        Body::Refusal(why) => app.messages.warn(format!("{}: {why}", frame.host)),
        Body::Stacks(_) => app.stacks.came(app.now()),
        _ => {}
    }
}

/// Moves the selection in the shown view.
fn travel(app: &mut App, motion: Motion) -> Option<Effect> {
    app.settle();
    if app.overlay.help.is_open() {
        app.overlay.help.travel(motion);
        return None;
    }
    app.page.view().travel(app, motion)
}

fn in_stacks(app: &mut App, action: &Action) {
    app.settle();
    match action {
        Action::ToggleBranch => app.stacks.toggle_branch(),
        Action::NextOutlier => app.stacks.next_outlier(),
        _ => app.stacks.next_thread(),
    }
}

/// Folds by the next kind of group; if there is none, shows what is needed.
fn fold(app: &mut App) {
    app.settle();
    let kinds = app.kinds();
    app.listing.fold = app.listing.fold.next(&kinds);
    if app.listing.fold == Fold::Hosts && kinds.is_empty() {
        let text = "by host; the communicators show no groups: use --groups tp4-dp2";
        app.messages.done(text);
    }
}

fn pin(app: &mut App) {
    app.settle();
    let note = app.selection.toggle_pin();
    app.messages.set_note(note);
}

/// Shows a quantity on the maps. A quantity without any figure is on no map.
fn show_metric(app: &mut App, metric: Metric) {
    if app.job_view.reported().contains(&metric) {
        app.maps = app.maps.showing(metric);
    } else {
        app.messages.failed(format!("no rank has reported {} yet", metric.title()));
    }
}
