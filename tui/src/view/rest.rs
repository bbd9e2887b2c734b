//! The screen without a job: which connection is silent, and what to try.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Paragraph, Widget as _},
};
use xpu_client::arrival::{Endpoint, Link};
use xpu_model::figure;

use super::{header, notices::names};
use crate::{
    app::{App, Choice, ScreenState},
    glyph,
    palette::{Palette, Role},
    widget::wrap::wrapped,
    width::Breakpoint,
};

/// Reasons listed before the rest is only counted.
const LISTED: usize = 4;

pub(super) fn draw(app: &App, breakpoint: Breakpoint, state: ScreenState, area: Rect, buffer: &mut Buffer) {
    let palette = app.palette;
    header::draw_title(app, breakpoint, Rect { height: 1, ..area }, buffer);
    let width = usize::from(area.width).min(96);
    // A recording has no hosts to wait for, and nothing to try: its first reports appear as its time
    // advances.
    if let Some(playback) = app.playback().filter(|_| state == ScreenState::Connecting) {
        let at = figure::time_of_day(playback.position);
        let text = format!("{} No report of a job yet at {at} UTC in this recording", glyph::WAITING);
        let line = Line::styled(text, palette.of(Role::Accent).patch(palette.of(Role::Strong)));
        buffer.set_line(area.x, area.y + 2.min(area.height - 1), &line, area.width);
        return;
    }
    let mut lines = vec![headline(app, state), Line::default(), chain(state, palette), Line::default()];
    lines.extend(hosts(app, width));
    lines.push(Line::default());
    lines.push(Line::styled("What to try", palette.of(Role::Strong)));
    for (index, (advice, command)) in advice(app, state).into_iter().enumerate() {
        let text = wrapped(&advice, width.saturating_sub(3), 2);
        lines.extend(text.into_iter().enumerate().map(|(line, text)| {
            Line::raw(if line == 0 { format!("{}. {text}", index + 1) } else { format!("   {text}") })
        }));
        lines.extend(command.map(|command| Line::styled(format!("   {command}"), palette.of(Role::Accent))));
    }
    for warning in app.messages.warnings() {
        let style = palette.of(Role::Warning);
        lines.extend(
            wrapped(warning, width.saturating_sub(2), 2).into_iter().map(|text| Line::styled(text, style)),
        );
    }
    let free = (area.height - 1).saturating_sub(lines.len() as u16);
    let place = Rect {
        x: area.x + (area.width - width as u16) / 2,
        y: area.y + 1 + free / 3,
        width: width as u16,
        height: area.height - 1 - free / 3,
    };
    Paragraph::new(lines).render(place, buffer);
}

fn headline(app: &App, state: ScreenState) -> Line<'static> {
    let hosts = app.connections.iter().len();
    let (glyph, role, text) = match state {
        ScreenState::Connecting if hosts == 0 => {
            (glyph::WAITING, Role::Accent, "Waiting for the first frame".to_owned())
        }
        ScreenState::Connecting => (
            glyph::WAITING,
            Role::Accent,
            format!("Connecting to {}", figure::counted(hosts, "host", "hosts")),
        ),
        ScreenState::NoAnswer => (glyph::ALARM, Role::Alarm, "No host answers".to_owned()),
        ScreenState::NoJob => {
            let up = figure::counted(app.connections.up(), "host answers", "hosts answer");
            (glyph::WAITING, Role::Accent, format!("{up}, no job yet"))
        }
        ScreenState::OtherJobs | ScreenState::Running => {
            let name = match &app.selection.choice {
                Choice::Named(name) => name.as_str(),
                Choice::Foremost(_) => "",
            };
            (glyph::WAITING, Role::Accent, format!("There is no job named {name} yet"))
        }
    };
    let style = app.palette.of(role).patch(app.palette.of(Role::Strong));
    Line::styled(format!("{glyph} {text}"), style)
}

/// The path of the data, with the part that is silent.
fn chain(state: ScreenState, palette: Palette) -> Line<'static> {
    let (program, collector) = match state {
        ScreenState::Connecting => (Hop::Unknown, Hop::Waiting),
        ScreenState::NoAnswer => (Hop::Unknown, Hop::Silent),
        ScreenState::NoJob | ScreenState::OtherJobs | ScreenState::Running => (Hop::Waiting, Hop::Good),
    };
    let name = |text: &'static str| Span::styled(text, palette.of(Role::Text));
    let hop = |hop: Hop| {
        let (sign, role) = hop.look();
        Span::styled(format!("  {sign}  "), palette.of(role))
    };
    Line::from(vec![
        name("your program"),
        hop(program),
        name("collector"),
        hop(collector),
        name("this screen"),
    ])
}

#[derive(Clone, Copy)]
enum Hop {
    Good,
    Waiting,
    Silent,
    Unknown,
}

impl Hop {
    fn look(self) -> (&'static str, Role) {
        match self {
            Self::Good => ("━━━ ● ━━▶", Role::Good),
            Self::Waiting => ("╌╌╌ ◌ ╌╌▷", Role::Accent),
            Self::Silent => ("╌╌╌ ✖ ╌╌▷", Role::Alarm),
            Self::Unknown => ("╌╌╌ ? ╌╌▷", Role::Muted),
        }
    }
}

/// The hosts, grouped by their state; failing ones first.
fn hosts(app: &App, width: usize) -> Vec<Line<'static>> {
    let palette = app.palette;
    let mut fates: Vec<(&Link, Vec<&Endpoint>)> = Vec::new();
    for (endpoint, link) in app.connections.iter() {
        match fates.iter_mut().find(|(fate, _)| *fate == link) {
            Some((_, endpoints)) => endpoints.push(endpoint),
            None => fates.push((link, vec![endpoint])),
        }
    }
    fates.sort_by_key(|(link, _)| match link {
        Link::Down { .. } => 0,
        Link::Connecting => 1,
        Link::Up => 2,
    });
    let mut lines = Vec::new();
    for (link, endpoints) in fates.iter().take(LISTED) {
        let (sign, role, text) = match link {
            Link::Up => (glyph::GOOD, Role::Good, "answers"),
            Link::Connecting => (glyph::WAITING, Role::Muted, "connecting"),
            Link::Down { why } => (glyph::ALARM, Role::Alarm, why.as_str()),
        };
        lines.push(Line::from(vec![
            Span::styled(format!("{sign} "), palette.of(role)),
            Span::styled(names(endpoints), palette.of(Role::Strong)),
        ]));
        let texts = wrapped(text, width.saturating_sub(2), 3);
        lines
            .extend(texts.into_iter().map(|text| Line::styled(format!("  {text}"), palette.of(Role::Muted))));
    }
    if fates.len() > LISTED {
        let text = format!("  and {} more", figure::count((fates.len() - LISTED) as u64));
        lines.push(Line::styled(text, palette.of(Role::Muted)));
    }
    lines
}

/// A sentence, and a command that can be copied.
fn advice(app: &App, state: ScreenState) -> Vec<(String, Option<String>)> {
    let start = Some("xpu-top run -- torchrun --nproc-per-node 8 train.py".to_owned());
    let first = app.connections.down().next().map_or("HOST", |(endpoint, _)| endpoint.host.as_str());
    let say = |text: &str| (text.to_owned(), None);
    let each = (format!("Key {} shows every host's link, and why it is down.", app.key("hosts")), None);
    match state {
        ScreenState::Connecting => {
            vec![say("Wait a few seconds: an answer takes one round trip to the host."), each]
        }
        ScreenState::NoAnswer => vec![
            ("Start the job under xpu-top; this also starts the host's collector:".to_owned(), start),
            ("Check the collector on its own host:".to_owned(), Some(format!("ssh {first} xpu-top status"))),
            say(
                "From other hosts a collector answers only with its key: copy ~/.config/xpu-top/key, or set XPU_TOP_KEY_FILE.",
            ),
            each,
        ],
        ScreenState::NoJob => vec![
            ("Start the job under xpu-top; nothing in its code changes:".to_owned(), start),
            say("A job that already runs under xpu-top run appears with its first CUDA call."),
        ],
        ScreenState::OtherJobs | ScreenState::Running => {
            let names: Vec<_> = app.observed.jobs.iter().map(|job| job.name().as_str()).collect();
            vec![
                say(&format!("There are: {}. Tab shows them.", names.join(", "))),
                (
                    "Start the requested job under its name:".to_owned(),
                    Some("xpu-top run --job NAME -- torchrun --nproc-per-node 8 train.py".to_owned()),
                ),
            ]
        }
    }
}
