//! The worst that is wrong, in a sentence: above every view.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::{Modifier, Style},
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{
    figure,
    finding::{Finding, Kind},
};

use crate::{
    app::App,
    glyph,
    palette::Role,
    report::sure,
    widget::{wrap::cut_at_word, wrap::wrapped},
};

/// Most lines of a hang's report.
const MOST: usize = 2;

/// Columns from which on the states of the GPUs have a line: narrow terminals are low, and need it for the stacks.
const FOR_GPUS: usize = 110;

/// The worst finding on one line; nothing if nothing is wrong.
pub(super) fn brief(app: &App, width: usize) -> Option<Line<'static>> {
    let finding = app.job_view.findings.first()?;
    let (sign, role) = loudness(finding);
    Some(Line::styled(
        format!("{sign} {}", short(app, finding, width.saturating_sub(2))),
        app.palette.of(role),
    ))
}

/// Who, where, what and the cost on one line. What is not certain says so, where that has room as well:
/// the details below always say it.
pub(super) fn short(app: &App, finding: &Finding, width: usize) -> String {
    let line = finding.headline(app.job());
    let unsure = format!("{}{line}", sure(finding.confidence));
    if unsure.width() <= width { unsure } else { cut_at_word(&line, width) }
}

/// Why the job hangs. It stays when the job continues, until the user has seen it.
pub(super) fn incident(app: &App, width: usize) -> Vec<Line<'static>> {
    let Some(incident) = &app.incident else { return brief(app, width).into_iter().collect() };
    let finding = &incident.finding;
    let mut lines = match incident.over {
        None => standstill(app, finding, width),
        Some(over) => {
            let head = format!("{} RESUMED at {} UTC", glyph::GOOD, figure::time_of_day(over));
            // The finding's statement no longer holds.
            lines_of(app, finding, (&head, "until then: "), app.palette.of(Role::Good), width)
        }
    };
    // The stacks are below: advice to look at them must not need anything that is absent.
    if app.stacks.rows().is_empty() && incident.over.is_none() {
        lines.push(next(app, finding, "", width));
    }
    lines
}

/// The same on a page that does not show the stacks, with the key that does.
pub(super) fn banner(app: &App, finding: &Finding, width: usize) -> Vec<Line<'static>> {
    let mut lines = standstill(app, finding, width);
    lines.push(next(app, finding, "; s shows every rank's stack", width));
    lines
}

fn next(app: &App, finding: &Finding, key: &str, width: usize) -> Line<'static> {
    let text = cut_at_word(&format!("next: {}{key}", finding.advice), width.saturating_sub(2));
    Line::styled(format!("  {text}"), app.palette.of(Role::Text))
}

fn standstill(app: &App, finding: &Finding, width: usize) -> Vec<Line<'static>> {
    let since = std::time::Duration::from_secs_f64(finding.since_s.max(0.0));
    let what = if finding.kind == Kind::Exited { "RANK EXITED" } else { "JOB HANGS" };
    let head = format!("{} {what}, {}", glyph::ALARM, figure::age(since));
    let style = app.palette.of(Role::Alarm);
    let loud = style.patch(app.palette.of(Role::Strong));
    let line = short(app, finding, width.saturating_sub(2));
    let mut lines = vec![Line::styled(format!("{} {line}", glyph::ALARM), loud)];
    lines.extend(lines_of(app, finding, (&head, ""), style, width));
    lines
}

/// The head, the sentence, the rank's code position, and how far each GPU has come.
fn lines_of(
    app: &App,
    finding: &Finding,
    (head, before): (&str, &str),
    style: Style,
    width: usize,
) -> Vec<Line<'static>> {
    let strong = app.palette.of(Role::Strong);
    let body = format!("{before}{}{}", sure(finding.confidence), finding.evidence.reason());
    let indent = head.width() + 4;
    let mut lines = Vec::new();
    let first = wrapped(&body, width.saturating_sub(indent), 1 + MOST);
    // The first line is shorter: what follows begins under the sign again.
    let (opening, rest) = first.split_first().map_or((String::new(), String::new()), |(first, _)| {
        (first.trim_end_matches(glyph::ELLIPSIS).trim_end().to_owned(), remainder(&body, first))
    });
    let loud = style.patch(strong).add_modifier(Modifier::REVERSED);
    lines.push(Line::from(vec![
        Span::styled(format!("{head} "), loud),
        Span::styled(format!(" {opening}"), style),
    ]));
    for text in wrapped(&rest, width.saturating_sub(2), MOST - 1) {
        lines.push(Line::styled(format!("  {text}"), style));
    }
    let named = finding.ranks.first().and_then(|&rank| Some((rank, app.stacks.tree().place_of(rank)?)));
    if let Some((rank, word)) = named {
        let is = if before.is_empty() { "is" } else { "was" };
        let text = cut_at_word(&format!("rank {rank} {is} in {word}"), width.saturating_sub(2));
        lines.push(Line::styled(format!("  {text}"), style.patch(strong)));
    }
    if let Some(gpus) = finding.evidence.gpus_sentence().filter(|_| width >= FOR_GPUS) {
        let text = cut_at_word(&gpus, width.saturating_sub(2));
        lines.push(Line::styled(format!("  {text}"), style));
    }
    lines
}

/// What of a text comes after its first line.
fn remainder(text: &str, first: &str) -> String {
    let words = first.split_whitespace().filter(|word| *word != "…").count();
    text.split_whitespace().skip(words).collect::<Vec<_>>().join(" ")
}

pub(super) fn loudness(finding: &Finding) -> (&'static str, Role) {
    if finding.stops_the_job() { (glyph::ALARM, Role::Alarm) } else { (glyph::WARNING, Role::Warning) }
}

/// Draws lines from the top of the area on, and says what is left below them.
pub(super) fn lines(lines: &[Line<'_>], area: Rect, buffer: &mut Buffer) -> Rect {
    for (line, y) in lines.iter().zip(area.y..area.bottom()) {
        buffer.set_line(area.x, y, line, area.width);
    }
    let taken = (lines.len() as u16).min(area.height);
    Rect { y: area.y + taken, height: area.height - taken, ..area }
}
