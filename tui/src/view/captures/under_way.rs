//! Running captures and recordings, and the last minutes in memory.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use xpu_client::{
    capture::Progress,
    kineto,
    screen_capture::{CaptureState, STEPS, STEPS_BEFORE},
};
use xpu_model::figure;

use super::super::{
    headline,
    panel::{self, Title},
};
use crate::{app::App, glyph, palette::Role, widget::wrap::cut_at_word, width::Breakpoint};

/// Number of lines. PyTorch's profiler has a line once traces were requested.
pub(super) fn lines(app: &App) -> u16 {
    if matches!(app.files.kineto, kineto::Standing::None) { 3 } else { 4 }
}

/// Columns of a capture's bar, and of a line's label.
const BAR: usize = 16;
const LABEL: usize = 11;

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let inner = panel::draw(app.palette, breakpoint, Title { name: "Now", ..Title::default() }, area, buffer);
    let traces = traces(app).map(|text| ("Kineto", text));
    let rest = [("recording", recording(app)), ("memory", memory(app))];
    let lines = [("capture", capture(app))].into_iter().chain(traces).chain(rest);
    let width = usize::from(inner.width).saturating_sub(LABEL);
    let lines: Vec<_> = lines
        .map(|(label, (role, text))| {
            Line::from(vec![
                Span::styled(format!("{label:<LABEL$}"), app.palette.of(Role::Muted)),
                Span::styled(cut_at_word(&text, width), app.palette.of(role)),
            ])
        })
        .collect();
    headline::lines(&lines, inner, buffer);
}

fn capture(app: &App) -> (Role, String) {
    match &app.files.capture {
        CaptureState::None if app.is_past() => (Role::Muted, "the past cannot be captured".to_owned()),
        CaptureState::None => {
            let text =
                format!("none; c captures {STEPS} steps of all ranks, with samples of {STEPS_BEFORE} before");
            (Role::Muted, text)
        }
        CaptureState::Beginning => {
            (Role::Accent, format!("{} requesting ranks from the hosts; c cancels", glyph::WAITING))
        }
        CaptureState::UnderWay(progress) => {
            let Progress { of, ranks, agreed, whole } = progress;
            let full = progress.filled(BAR);
            let bar = glyph::FULL.repeat(full) + &glyph::EMPTY.repeat(BAR - full);
            let text = format!(
                "{bar} {}: {agreed} of {ranks} ranks agreed, {whole} of {ranks} arrived; c cancels",
                of.on_screen()
            );
            (Role::Accent, text)
        }
        CaptureState::Done(outcome) if outcome.complaints.is_empty() => {
            (Role::Good, format!("{} {outcome}", glyph::GOOD))
        }
        CaptureState::Done(outcome) => {
            (Role::Warning, format!("{} {outcome}; {}", glyph::WARNING, outcome.complaints.join("; ")))
        }
        CaptureState::Failed(why) => (Role::Alarm, format!("{} {why}", glyph::ALARM)),
    }
}

/// Traces by PyTorch's profiler, if they were requested.
fn traces(app: &App) -> Option<(Role, String)> {
    Some(match &app.files.kineto {
        kineto::Standing::None => return None,
        kineto::Standing::UnderWay(line) => {
            (Role::Accent, format!("{} {line}; {} cancels", glyph::WAITING, app.key("kineto")))
        }
        kineto::Standing::Done(outcome) if outcome.complaints.is_empty() => {
            (Role::Good, format!("{} {}", glyph::GOOD, outcome.summary))
        }
        kineto::Standing::Done(outcome) => (
            Role::Warning,
            format!("{} {}; {}", glyph::WARNING, outcome.summary, outcome.complaints.join("; ")),
        ),
        kineto::Standing::Failed(why) => (Role::Alarm, format!("{} {why}", glyph::ALARM)),
    })
}

fn recording(app: &App) -> (Role, String) {
    let state = &app.files.recording;
    match (&state.file, &state.failure) {
        (Some(file), _) => {
            let text = format!(
                "{} {}, {}, {} frames; {} stops it",
                glyph::GOOD,
                file.path.display(),
                figure::bytes(file.bytes),
                figure::count(file.frames),
                app.key("record"),
            );
            (Role::Alarm, text)
        }
        (None, Some(why)) => (Role::Alarm, format!("{} {why}", glyph::ALARM)),
        (None, None) if app.is_replay() => (Role::Muted, "this is a recording".to_owned()),
        (None, None) => (
            Role::Muted,
            format!("none; {} records from now on, with the minutes in memory", app.key("record")),
        ),
    }
}

fn memory(app: &App) -> (Role, String) {
    match app.files.recording.kept {
        Some((first, bytes)) => {
            let text = format!(
                "the last {} in {}; ← goes back, r writes it to a file",
                figure::age(app.now().since(first)),
                figure::bytes(bytes as u64)
            );
            (Role::Text, text)
        }
        None => (Role::Muted, "nothing is kept yet".to_owned()),
    }
}
