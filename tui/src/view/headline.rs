//! The worst finding in a sentence, above every view.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::Line,
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{figure, finding::Finding};

use crate::{
    app::App,
    glyph,
    palette::Role,
    report::sure,
    widget::wrap::{clauses, cut_at_word},
};

/// Largest number of lines of a hang's details.
const MOST: usize = 2;

/// Smallest width at which the states of the GPUs have a line: narrow terminals are mostly low, and need the
/// line for the stacks.
const FOR_GPUS: usize = 110;

/// The worst finding on one line; empty without findings.
pub(super) fn brief(app: &App, width: usize) -> Option<Line<'static>> {
    let finding = app.job_view.findings.first()?;
    let (sign, role) = emphasis(finding);
    Some(Line::styled(
        format!("{sign} {}", short(app, finding, width.saturating_sub(2))),
        app.palette.of(role),
    ))
}

/// The rank, the host, the problem and the cost on one line. An uncertain finding is marked if there is room;
/// the details always mark it.
pub(super) fn short(app: &App, finding: &Finding, width: usize) -> String {
    let line = finding.headline(app.job());
    let unsure = format!("{}{line}", sure(finding.confidence));
    if unsure.width() <= width { unsure } else { cut_at_word(&line, width) }
}

/// Why the job hangs. If the job continues, this stays until the user has seen it.
pub(super) fn incident(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(incident) = &app.observed.incident else { return brief(app, width).into_iter().collect() };
    let finding = &incident.finding;
    let Some(over) = incident.over else {
        let mut lines = stall(app, finding, width);
        // The advice is mostly to look at the stacks, which are shown below once they have arrived.
        if app.stacks.rows().is_empty() {
            lines.push(next(app, finding, "", width));
        }
        return lines;
    };
    let style = app.palette.of(Role::Good);
    let head = format!("{} RESUMED at {} UTC ", glyph::GOOD, figure::time_of_day(over));
    // The finding no longer holds.
    let until = "  until then: ";
    let line = short(app, finding, width.saturating_sub(until.width()));
    let mut lines =
        vec![Line::styled(head, emphasized(app, style)), Line::styled(format!("{until}{line}"), style)];
    lines.extend(place(app, finding, "was", style, width));
    lines
}

/// The reason of a hang on a page without the stacks, with the key that shows them.
pub(super) fn banner(app: &App, finding: &Finding, width: usize) -> Vec<Line<'static>> {
    let mut lines = stall(app, finding, width);
    lines.push(next(app, finding, "; s shows every rank's stack", width));
    lines
}

fn next(app: &App, finding: &Finding, key: &str, width: usize) -> Line<'static> {
    let text = cut_at_word(&format!("next: {}{key}", finding.advice), width.saturating_sub(2));
    Line::styled(format!("  {text}"), app.palette.of(Role::Text))
}

/// The headline, the details, the rank's code position, and the progress of each GPU.
fn stall(app: &App, finding: &Finding, width: usize) -> Vec<Line<'static>> {
    let style = app.palette.of(Role::Alarm);
    let space = width.saturating_sub(2);
    let line = short(app, finding, space);
    let mut lines = vec![Line::styled(format!("{} {line} ", glyph::ALARM), emphasized(app, style))];
    let details = clauses(&finding.details(&line), space, MOST);
    let gpus = finding.evidence.gpus_sentence().filter(|_| width >= FOR_GPUS);
    lines.extend(details.into_iter().map(|text| Line::styled(format!("  {text}"), style)));
    lines.extend(place(app, finding, "is", style, width));
    lines.extend(gpus.map(|text| Line::styled(format!("  {}", cut_at_word(&text, space)), style)));
    lines
}

/// The style in reverse video.
fn emphasized(app: &App, style: Style) -> Style {
    style.patch(app.palette.of(Role::Strong)).add_modifier(Modifier::REVERSED)
}

/// The code position of its first rank, once its stack is known.
fn place(app: &App, finding: &Finding, is: &str, style: Style, width: usize) -> Option<Line<'static>> {
    let place = finding.evidence.places().first()?;
    let text = format!("rank {} {is} in {}", place.rank, place.named());
    let text = cut_at_word(&text, width.saturating_sub(2));
    Some(Line::styled(format!("  {text}"), style.patch(app.palette.of(Role::Strong))))
}

pub(super) fn emphasis(finding: &Finding) -> (&'static str, Role) {
    if finding.stops_the_job() { (glyph::ALARM, Role::Alarm) } else { (glyph::WARNING, Role::Warning) }
}

/// Draws lines from the top of the area on, and returns the area below them.
pub(super) fn lines(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) -> Rect {
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
    let taken = (lines.len() as u16).min(area.height);
    Rect { y: area.y + taken, height: area.height - taken, ..area }
}
