//! A terminal that is too small: one line with the most important figure.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};
use xpu_model::figure;

use super::header;
use crate::{
    app::{App, ScreenState},
    palette::Role,
    widget::wrap::cut_at_word,
    width::LEAST,
};

pub(super) fn draw(app: &App, area: Rect, buffer: &mut Buffer) {
    if area.is_empty() {
        return;
    }
    let job_view = &app.job_view;
    let figure = match (app.screen_state(), job_view.findings.first()) {
        (ScreenState::Running, Some(finding)) if finding.stops_the_job() => finding.evidence.to_string(),
        (ScreenState::Running, _) => match (job_view.headline.step_time, job_view.headline.age) {
            (Some(step_time), None) => format!("{} a step", figure::time(step_time)),
            (Some(step_time), Some(age)) => {
                format!("{} a step {} ago", figure::time(step_time), figure::age(age))
            }
            (None, _) => format!("{} of {} ranks", job_view.heard, job_view.world_size),
        },
        _ => "no job".to_owned(),
    };
    let header::Sign { glyph, role, .. } = header::status(app);
    let (columns, lines) = LEAST;
    let text = format!("{glyph} {figure} · needs {columns}x{lines}");
    let line = Line::styled(cut_at_word(&text, usize::from(area.width)), app.palette.of(role));
    buffer.set_line(area.x, area.y, &line, area.width);
    if area.height > 1 {
        let why = format!("This terminal has {}x{}; make it larger.", area.width, area.height);
        let line = Line::styled(cut_at_word(&why, usize::from(area.width)), app.palette.of(Role::Muted));
        buffer.set_line(area.x, area.y + 1, &line, area.width);
    }
}
