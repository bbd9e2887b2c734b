//! The position of a replay: `REPLAY 02:14:07 x4`, a bar with the findings on it, and the keys that move
//! time.

use std::time::Duration;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use xpu_client::{capture::Progress, screen_capture::CaptureState, time};
use xpu_model::figure;
use xpu_wire::unit::Moment;

use super::headline::emphasis;
use crate::{
    action::{Action, Control},
    app::App,
    glyph,
    hits::{Hits, Target},
    palette::Role,
    playback::{Mark, Of, Playback},
    widget::ends,
};

/// Cells of a capture's bar.
const BAR: usize = 8;

pub(super) fn height(app: &App) -> u16 {
    u16::from(app.playback().is_some())
}

/// The header's word for a screen that does not show the present.
pub(super) fn word(playback: &Playback) -> &'static str {
    match playback.of {
        Of::File => "REPLAY",
        Of::Live => "PAST",
    }
}

/// `REC 12.4 MiB`, for the header, while a file is written.
pub(super) fn recording(app: &App) -> Option<Span<'static>> {
    let file = app.files.recording.file.as_ref()?;
    let name = file.path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    let text = format!("{} REC {name} {}   ", glyph::GOOD, figure::bytes(file.bytes));
    Some(Span::styled(text, app.palette.of(Role::Alarm)))
}

/// `CAPTURE steps 812 to 814 ▰▰▰▱▱ 5/8`, for the header, while it arrives.
pub(super) fn capture(app: &App) -> Option<Span<'static>> {
    let text = match &app.files.capture {
        CaptureState::Beginning => "CAPTURE ...".to_owned(),
        CaptureState::UnderWay(progress) => {
            let Progress { of, ranks, .. } = progress;
            let (done, far) = progress.far();
            let full = progress.filled(BAR);
            let bar = glyph::FULL.repeat(full) + &glyph::EMPTY.repeat(BAR - full);
            format!("CAPTURE {} {bar} {done}/{ranks} {far}", of.short())
        }
        _ if app.files.kineto.is_under_way() => "KINETO ...".to_owned(),
        _ => return None,
    };
    Some(Span::styled(format!("{} {text}   ", glyph::GOOD), app.palette.of(Role::Accent)))
}

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let Some(playback) = app.playback().filter(|_| area.height > 0) else { return };
    let palette = app.palette;
    let state = if playback.paused { "stopped".to_owned() } else { playback.speed.to_string() };
    let left = Line::from(vec![
        Span::styled(
            format!("{} {} ", word(playback), figure::time_of_day(playback.position)),
            palette.of(Role::Strong),
        ),
        Span::styled(state, palette.of(Role::Accent)),
        Span::styled(if playback.looped { " loop " } else { " " }, palette.of(Role::Muted)),
    ]);
    let right = Line::styled(caption(playback), palette.of(Role::Muted));
    ends::draw(&left, &right, area, buffer);
    hits.put(Rect { width: left.width() as u16, ..area }, Target::Do(Action::Control(Control::Pause)));
    let (from, to) = (left.width() as u16, area.width.saturating_sub(right.width() as u16 + 1));
    if to > from + 8 {
        let place = Rect { x: area.x + from, width: to - from, ..area };
        bar(app, playback, place, buffer);
        hits.put(place, Target::Time);
    }
}

/// The next finding, and the total length.
fn caption(playback: &Playback) -> String {
    let passed = format!("{} of {}", time::span(playback.passed()), time::span(playback.length()));
    let next = match playback.next_mark() {
        Some(mark) => format!("next finding ] {}", figure::time_of_day(mark.at)),
        None if playback.searched < playback.span.last => {
            format!("findings searched to {}", figure::time_of_day(playback.searched))
        }
        None if playback.marks.is_empty() => "no findings".to_owned(),
        None => "no later finding".to_owned(),
    };
    let out = if playback.of == Of::Live { "   } now" } else { "" };
    format!("{passed}   {next}{out}")
}

/// Each cell is a share of the time. It shows whether this time has passed, and whether a finding begins in
/// it.
fn bar(app: &App, playback: &Playback, area: Rect, buffer: &mut Buffer) {
    let length = playback.length().max(Duration::from_nanos(1)).as_secs_f64();
    let cell = |moment: Moment| {
        let share = moment.since(playback.span.first).as_secs_f64() / length;
        ((share * f64::from(area.width)) as u16).min(area.width - 1)
    };
    let here = cell(playback.position);
    for x in 0..area.width {
        let role = if x < here { Role::Accent } else { Role::Faint };
        buffer.set_string(area.x + x, area.y, "─", app.palette.of(role));
    }
    for Mark { at, finding, .. } in &playback.marks {
        let (sign, role) = emphasis(finding);
        buffer.set_string(area.x + cell(*at), area.y, sign, app.palette.of(role));
    }
    buffer.set_string(area.x + here, area.y, "●", app.palette.of(Role::Accent));
}
