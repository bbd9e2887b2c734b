//! Captures and recordings: the running ones, and those in the folder.

mod opened;
mod under_way;

use std::time::Duration;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
};
use xpu_model::figure;

use super::{
    header,
    list::{Cell, Column, List},
    panel::{self, Title},
};
use crate::{
    app::{App, Opened},
    file_loader::{Label, ListedFile, What},
    glyph,
    hits::Hits,
    palette::Role,
    widget::wrap::cut_front,
    width::Breakpoint,
};

/// A file without an end is still being written if its last write is this recent, because recorders write
/// every second.
const WRITING: Duration = Duration::from_secs(5);

/// Columns of the longest name.
const LONGEST: usize = 44;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let below = header::draw_brief(app, breakpoint, area, buffer);
    let frame = if breakpoint == Breakpoint::Wide { 2 } else { 1 };
    let [area, rest] =
        Layout::vertical([Constraint::Length(under_way::lines(app) + frame), Constraint::Fill(1)])
            .areas(below);
    under_way::draw(app, breakpoint, area, buffer);
    let files = app.files.all().len() as u16;
    let opened = if matches!(app.files.opened, Opened::Nothing) { 0 } else { rest.height * 6 / 10 };
    let listed = rest.height - opened;
    // A short list leaves the space to the open file.
    let listed = if opened > 0 { listed.min(files.saturating_add(frame + 1).max(4)) } else { listed };
    let [list, open] = Layout::vertical([Constraint::Length(listed), Constraint::Fill(1)]).areas(rest);
    draw_list(app, breakpoint, list, buffer, hits);
    opened::draw(app, breakpoint, open, buffer);
}

fn draw_list(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let files = app.files.all();
    let left_out = app.files.listing.as_ref().map_or(0, |listing| listing.left_out);
    let right = if left_out > 0 {
        format!(
            "{} and {} older ones",
            figure::counted(files.len(), "file", "files"),
            figure::count(left_out as u64)
        )
    } else {
        figure::counted(files.len(), "file", "files")
    };
    let about = if breakpoint == Breakpoint::Narrow {
        "newest first"
    } else {
        "captures and recordings, newest first"
    };
    let title = Title { name: "In this folder", about: about.to_owned(), right };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let nothing = match &app.files.listing {
        None => Some((Role::Muted, format!("{} reading the folder", glyph::WAITING))),
        Some(listing) => match &listing.failure {
            Some(why) => Some((Role::Alarm, format!("{} {why}", glyph::ALARM))),
            None if files.is_empty() => Some((
                Role::Muted,
                format!(
                    "No captures or recordings here. {capture} captures the next 3 steps of all ranks, with samples of the 20 before; {record} starts and stops a recording. Both write a new file to the folder xpu-top was started in.",
                    capture = app.key("capture"),
                    record = app.key("record"),
                ),
            )),
            None => None,
        },
    };
    if let Some((role, text)) = nothing {
        panel::paragraph(app.palette, role, &text, inner, buffer);
        return;
    }
    let names = files.iter().map(|file| file.path.to_string_lossy().chars().count()).max().unwrap_or(0);
    let (short, what) = match breakpoint {
        Breakpoint::Wide => (LONGEST, 36),
        Breakpoint::Medium => (LONGEST - 14, 22),
        _ => (20, 22),
    };
    let name = names.clamp(8, short);
    let columns = [
        Column::text("kind", 11, 0),
        Column::text("file", name, 0),
        Column::figure("size", 9, 2),
        Column::figure("written", 12, 1),
        Column::text("its contents", what, 0),
        Column::text("job", 16, 4),
    ];
    let list = List { columns: &columns, sorted: None, selected: Some(app.files.at()), lines: files.len() };
    let shown = list.draw(app.palette, inner, buffer, |line| cells(app, &files[line], name));
    hits.lines(inner, shown);
}

fn cells(app: &App, file: &ListedFile, name: usize) -> Vec<Cell> {
    // The time of a replay differs from that of the files.
    let age =
        app.files.listing.as_ref().map_or_else(|| app.now(), |listing| listing.looked).since(file.written);
    let (sign, kind, role) = match &file.label {
        Err(_) => (glyph::ALARM, "broken", Role::Alarm),
        Ok(Label { closed: false, .. }) if age < WRITING => (glyph::WAITING, "writing", Role::Muted),
        Ok(Label { closed: false, .. }) => (glyph::WARNING, "cut short", Role::Warning),
        Ok(Label { damage: 1.., .. }) => (glyph::WARNING, "damaged", Role::Warning),
        Ok(Label { what: What::Capture { .. }, .. }) => (glyph::GOOD, "capture", Role::Good),
        Ok(Label { what: What::Recording { .. }, .. }) => (glyph::GOOD, "recording", Role::Accent),
        Ok(Label { what: What::Traces { .. }, .. }) => (glyph::GOOD, "traces", Role::Good),
    };
    let what = match &file.label {
        Ok(label) => (contents(label), Role::Text),
        Err(why) => (why.clone(), Role::Alarm),
    };
    vec![
        (format!("{sign} {kind}"), role),
        (cut_front(&file.path.display().to_string(), name), Role::Strong),
        (figure::bytes(file.bytes), Role::Text),
        (format!("{} ago", figure::age(age)), Role::Text),
        what,
        (file.label.as_ref().map(|label| label.job.clone()).unwrap_or_default(), Role::Muted),
    ]
}

/// `steps 812 to 814, 8 ranks`, `500 ms, 8 ranks, 1 missing`, `12 m of 64 ranks`
fn contents(label: &Label) -> String {
    let absent = |missing: usize| {
        if missing > 0 { format!(", {} missing", figure::count(missing as u64)) } else { String::new() }
    };
    match &label.what {
        What::Traces { of: None, .. } => "traces by PyTorch's profiler".to_owned(),
        What::Traces { of: Some(of), ranks, missing } => {
            format!("{of}, {}{}", figure::counted(*ranks, "rank", "ranks"), absent(*missing))
        }
        What::Capture { ranks, stalled: true, .. } => {
            format!("a job that hung, {}", figure::counted(*ranks, "rank", "ranks"))
        }
        What::Capture { of, ranks, missing, .. } => {
            format!("{}, {}{}", of.on_screen(), figure::counted(*ranks, "rank", "ranks"), absent(*missing))
        }
        What::Recording { from, to, ranks, .. } => {
            format!("{}, {}", figure::age(to.since(*from)), figure::counted(*ranks, "rank", "ranks"))
        }
    }
}
