//! All findings, the worst first; the evidence of the selected one; and the ended ones.

mod incidents;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::{Line, Span},
};
use serde::Serialize;
use serde_json::Value;
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{
    figure,
    finding::{Confidence, Entry, Finding, What},
    stack::Ranks,
};

use super::{
    header, headline, notices,
    panel::{self, Title, window},
};
use crate::{
    app::App,
    glyph,
    hits::{Hits, Target},
    palette::Role,
    widget::{row::Column, wrap::cut_at_word, wrap::wrapped},
    width::Breakpoint,
};

/// Runs of ranks in the detail.
const RUNS: usize = 16;

/// Columns of a label in the detail, and of the sign before a headline in the list.
const LABEL: usize = 11;
const SIGN: usize = 3;

/// Lines of the list before the detail gets the space.
const LISTED: usize = 8;

/// Lines of what limits the job, below the findings.
const BOUND: usize = 2;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let findings = &app.job_view.findings;
    let frame = if breakpoint == Breakpoint::Wide { 2 } else { 1 };
    // If there is none, outliers and bottlenecks are shown instead.
    let listed = if findings.is_empty() { 3 } else { findings.len() };
    let margin = if breakpoint == Breakpoint::Wide { 4 } else { 0 };
    let width = usize::from(area.width.saturating_sub(margin));
    let bound = if breakpoint == Breakpoint::Wide && !findings.is_empty() && app.job_view.stall().is_none() {
        bound(app, width, BOUND)
    } else {
        Vec::new()
    };
    let list = (listed.min(LISTED) + bound.len()) as u16 + frame;
    let why =
        findings.get(app.selection.finding).map_or_else(Vec::new, |finding| detail(app, finding, width));
    let detail = if why.is_empty() { 0 } else { why.len() as u16 + frame };
    let [title, list, detail, log] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(list),
        Constraint::Length(detail),
        Constraint::Fill(1),
    ])
    .areas(area);
    header::draw_title(app, breakpoint, title, buffer);
    draw_list(app, breakpoint, &bound, list, buffer, hits);
    if let Some(finding) = findings.get(app.selection.finding) {
        let title = Title { name: "Why", about: name(finding), ..Title::default() };
        let inner = panel::draw(app.palette, breakpoint, title, detail, buffer);
        headline::lines(&why, inner, buffer);
    }
    match app.playback() {
        Some(playback) => incidents::draw(app, playback, breakpoint, log, buffer),
        None => draw_log(app, breakpoint, log, buffer),
    }
}

/// What limits the job as a whole.
fn bound(app: &App, width: usize, most: usize) -> Vec<Line<'static>> {
    let text = app.job_view.bound.as_ref().map_or_else(Vec::new, |it| wrapped(&it.to_string(), width, most));
    text.into_iter().map(|text| Line::styled(text, app.palette.of(Role::Muted))).collect()
}

fn draw_list(
    app: &App,
    breakpoint: Breakpoint,
    bound: &[Line<'_>],
    area: Rect,
    buffer: &mut Buffer,
    hits: &mut Hits,
) {
    let findings = &app.job_view.findings;
    let about = if findings.is_empty() { String::new() } else { "by cost".to_owned() };
    let right = figure::counted(findings.len(), "finding", "findings");
    let together = if findings.len() > 1 { ", together " } else { ", " };
    let right = match &app.job_view.lost {
        Some(lost) if breakpoint < Breakpoint::Wide => {
            let since = figure::age(lost.since());
            format!("{right}{together}{:.0} % of the time in {since}", lost.cost.pct)
        }
        Some(lost) => format!("{right}{together}{lost}"),
        None => right,
    };
    let inner = panel::draw(app.palette, breakpoint, Title { name: "Findings", about, right }, area, buffer);
    if findings.is_empty() {
        let width = usize::from(inner.width);
        let (text, role) =
            if app.job_view.is_frozen() || app.job_view.heard < app.job_view.world_size as usize {
                let text = "no findings, but not all ranks report: no data does not mean healthy";
                (format!("{} {text}", glyph::STALE), Role::Warning)
            } else {
                let heard = figure::counted(app.job_view.heard, "rank", "ranks");
                let at = app.playback().map(|playback| figure::time_of_day(playback.position));
                let at = at.map_or_else(String::new, |at| format!(" at {at} UTC"));
                (format!("{} no findings{at}: {heard}", glyph::GOOD), Role::Good)
            };
        let outlier = notices::outlier_text(app).map(|text| (text, Role::Warning));
        let others = app.observed.others.text();
        let others = others.map(|text| (format!("{} {text}", glyph::ALARM), Role::Alarm));
        let short =
            |(text, role): (String, Role)| Line::styled(cut_at_word(&text, width), app.palette.of(role));
        let mut lines: Vec<_> = [(text, role)].into_iter().chain(outlier).chain(others).map(short).collect();
        let left = usize::from(inner.height).saturating_sub(lines.len());
        lines.extend(self::bound(app, width, left));
        for (line, y) in lines.into_iter().zip(inner.y..inner.bottom()) {
            buffer.set_line(inner.x, y, &line, inner.width);
        }
        return;
    }
    let [inner, below] =
        Layout::vertical([Constraint::Fill(1), Constraint::Length(bound.len() as u16)]).areas(inner);
    headline::lines(bound, below, buffer);
    // On a narrow terminal the headline takes the whole line, and the detail names the class.
    let class = |finding: &Finding| {
        if breakpoint == Breakpoint::Wide { format!("{}  ", name(finding)) } else { String::new() }
    };
    let names = findings.iter().map(|finding| class(finding).width()).max().unwrap_or(0);
    let shown = window(Some(app.selection.finding), findings.len(), usize::from(inner.height));
    for (index, y) in shown.zip(inner.y..) {
        let finding = &findings[index];
        let chosen = index == app.selection.finding;
        let ground = if chosen { app.palette.selected() } else { Style::new() };
        let line = Rect { y, height: 1, ..inner };
        buffer.set_style(line, ground);
        hits.put(line, Target::Line(index));
        let (sign, role) = headline::emphasis(finding);
        let style = ground.patch(app.palette.of(role));
        let head = format!(" {sign} {}", Column::name(names).cell(&class(finding)));
        let text = headline::short(app, finding, usize::from(inner.width).saturating_sub(head.width()));
        let summary = Line::from(vec![
            Span::styled(head, style.patch(app.palette.of(Role::Strong))),
            Span::styled(text, style),
        ]);
        buffer.set_line(line.x, y, &summary, inner.width);
        if chosen {
            buffer.set_string(line.x, y, glyph::CURSOR, ground.patch(app.palette.of(Role::Accent)));
        }
    }
}

/// `hang, not entered`: kind and class, by the words of `status --json`.
pub(super) fn name(finding: &Finding) -> String {
    format!("{}, {}", word(&finding.kind), word(&finding.class))
}

fn word(value: &impl Serialize) -> String {
    let json = serde_json::to_value(value).ok();
    json.as_ref().and_then(Value::as_str).unwrap_or("unknown").replace('_', " ")
}

/// The details of one finding.
fn detail<'a>(app: &App, finding: &'a Finding, width: usize) -> Vec<Line<'a>> {
    let (_, role) = headline::emphasis(finding);
    let mut lines = Vec::new();
    let mut put = |label: &'static str, text: &str, role: Role, most: usize| {
        let labels = [label].into_iter().chain(std::iter::repeat(""));
        for (text, label) in wrapped(text, width.saturating_sub(LABEL), most).into_iter().zip(labels) {
            lines.push(entry(app, label, Span::styled(text, app.palette.of(role))));
        }
    };
    let headline = finding.headline(app.job());
    // The list shows the whole headline, if there is room.
    if headline.width() + SIGN > width {
        put("what", &headline, role, 2);
    }
    put("evidence", &finding.details(&headline), role, 5);
    if let Some(gpus) = finding.evidence.gpus_sentence() {
        put("", &gpus, role, 2);
    }
    for place in finding.evidence.places() {
        put("", &place.to_string(), role, 2);
    }
    put("next", &finding.advice, Role::Strong, 3);
    let ranks: Ranks = finding.ranks.iter().copied().collect();
    let host = finding.ranks.first().and_then(|&rank| app.job()?.rank(rank));
    let host = host
        .filter(|_| ranks.len() == 1)
        .map_or_else(String::new, |view| format!(", {}, pid {}", view.host(), view.pid()));
    put("ranks", &format!("{}{host}", ranks.brief(RUNS)), Role::Text, 2);
    if let Some(of) = &finding.collective {
        let operation = of.operation.as_deref().unwrap_or("a collective");
        let name = if of.name.is_empty() { String::new() } else { format!(" ({})", of.name) };
        let size = of.bytes.map_or_else(String::new, |bytes| format!(", {}", figure::bytes(bytes)));
        let text = format!(
            "{operation} number {} of communicator {}{name}{size}",
            figure::count(of.number),
            of.communicator,
        );
        put("hangs at", &text, Role::Text, 2);
    }
    let since = app.since(finding);
    let text = format!("{} UTC, {}", figure::time_of_day(since), figure::age(app.now().since(since)));
    put("since", &text, Role::Text, 1);
    if let Some(cost) = &finding.cost {
        let text = format!("{cost}: {}", word(&finding.severity));
        put("costs", &text, Role::Text, 2);
    }
    let confidence = match finding.confidence {
        Confidence::Certain => "certain",
        Confidence::Likely => "likely",
        Confidence::Guess => "a guess",
    };
    put("confidence", confidence, Role::Text, 1);
    lines
}

fn entry<'a>(app: &App, label: &'a str, value: Span<'a>) -> Line<'a> {
    Line::from(vec![Span::styled(format!("{label:<LABEL$}"), app.palette.of(Role::Muted)), value])
}

fn draw_log(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let title = Title { name: "Past findings", about: "newest first, UTC".to_owned(), ..Title::default() };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    if app.logged().next().is_none() {
        let line = Line::styled("none since this screen was opened", app.palette.of(Role::Muted));
        buffer.set_line(inner.x, inner.y, &line, inner.width);
    }
    let width = usize::from(inner.width);
    let shown = || app.logged().take(inner.height.into());
    let words = shown().map(|entry| entry.what.to_string().width()).max().unwrap_or(0);
    for (entry, y) in shown().zip(inner.y..) {
        buffer.set_line(inner.x, y, &logged(app, entry, words, width), inner.width);
    }
}

fn logged(app: &App, entry: &Entry, words: usize, width: usize) -> Line<'static> {
    let (sign, role) = match entry.what {
        What::Began => headline::emphasis(&entry.finding),
        What::Ended(_) => (glyph::ENDED, Role::Good),
    };
    let what = format!("{}{}", entry.finding.headline(app.job()), entry.lost());
    let time = format!("{}  ", figure::time_of_day(entry.at));
    let head = format!("{sign} {}  ", Column::name(words).cell(&entry.what.to_string()));
    let taken = time.width() + head.width();
    Line::from(vec![
        Span::styled(time, app.palette.of(Role::Muted)),
        Span::styled(head, app.palette.of(role)),
        Span::raw(cut_at_word(&what, width.saturating_sub(taken))),
    ])
}
