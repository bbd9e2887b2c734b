//! The code positions of all ranks: the merged stacks, the fewest ranks first, and next to them the positions
//! in the communicator.

mod frames;
mod rank_positions;

pub(super) use rank_positions::table as places;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::Line,
};
use xpu_model::figure;

use super::{
    filtered, header, headline,
    panel::{self, Title},
};
use crate::{
    app::{App, StackState},
    glyph,
    hits::Hits,
    palette::Role,
    widget::wrap::wrapped,
    width::Breakpoint,
};

/// Columns of the positions, which are next to the tree.
const BESIDE: u16 = 62;

/// Smallest height at which there is always room for the legend of letters.
const LEGEND: u16 = 20;

/// Number of notes shown under the tree.
const NOTES: usize = 2;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    header::draw_title(app, breakpoint, Rect { height: 1, ..area }, buffer);
    let below = Rect { y: area.y + 1, height: area.height.saturating_sub(1), ..area };
    let headline_of_incident = headline::incident(app, usize::from(area.width));
    let below = headline::lines(&headline_of_incident, below, buffer);
    let groups = app.stacks.rank_positions().groups.len() as u16;
    let (tree, beside) = if breakpoint == Breakpoint::Wide {
        let [tree, beside] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(BESIDE)]).spacing(1).areas(below);
        (tree, beside)
    } else {
        let lines = if groups == 0 { 0 } else { (groups + 3).min(7) };
        let [tree, beside] = Layout::vertical([Constraint::Fill(1), Constraint::Length(lines)]).areas(below);
        (tree, beside)
    };
    rank_positions::draw(app, breakpoint, beside, buffer, hits);
    draw_tree(app, breakpoint, tree, buffer, hits);
}

fn draw_tree(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let stacks = &app.stacks;
    let expected = stacks.expected();
    let state = stacks.state(app.now());
    let read = stacks.newest().map(|newest| format!("read {} ago", figure::age(app.now().since(newest))));
    let title = Title {
        name: "Stacks",
        about: match &state {
            StackState::Coming(came) if *came > 0 => {
                format!("{came} of {expected} ranks, reading the others{}", filtered::filter(app))
            }
            StackState::Here if app.listing.filter.is_some() => {
                format!("of {}{}", filtered::ranks(app), filtered::filter(app))
            }
            StackState::Here => format!("of {}, the fewest first", filtered::ranks(app)),
            _ => String::new(),
        },
        right: read.filter(|_| !stacks.rows().is_empty()).unwrap_or_default(),
    };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let words = match &state {
        StackState::Here | StackState::Coming(1..) if stacks.shown().ranks.is_empty() => {
            panel::paragraph(app.palette, Role::Muted, &filtered::nobody(app), inner, buffer);
            return;
        }
        StackState::Here | StackState::Coming(1..) => {
            return full(app, inner, buffer, hits);
        }
        StackState::NotRequested => vec![
            format!("{} No stacks read yet.", glyph::HINT),
            format!(
                "{} reads every rank's stacks now, without stopping a process. When a job hangs they are read automatically.",
                app.key("read-stacks"),
            ),
        ],
        StackState::Coming(_) => vec![
            format!(
                "{} Reading the stacks of {}.",
                glyph::WAITING,
                figure::counted(expected, "rank", "ranks")
            ),
            "Each collector reads those of its own host; the tree grows as they arrive.".to_owned(),
        ],
        StackState::Silent => vec![
            format!("{} No collector sent stacks.", glyph::ALARM),
            "Check that the collectors run and have this version: `xpu-top status` shows which answer."
                .to_owned(),
            format!(
                "{} asks again; {} shows each host with its link.",
                app.key("read-stacks"),
                app.key("hosts")
            ),
        ],
        StackState::Refused(why) => vec![
            format!("{} Stacks cannot be read: {why}.", glyph::WARNING),
            format!(
                "A recording has the stacks read while it was made: when the job hung, and on request. {} goes to the next finding.",
                app.key("next-finding"),
            ),
        ],
    };
    let mut lines = Vec::new();
    for (index, text) in words.iter().enumerate() {
        let role = if index == 0 { Role::Strong } else { Role::Muted };
        for text in wrapped(text, usize::from(inner.width).min(96), 3) {
            lines.push(Line::styled(text, app.palette.of(role)));
        }
    }
    headline::lines(&lines, inner, buffer);
}

/// The tree, and below it the notes about what could not be read.
fn full(app: &App, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let mut notes = Vec::new();
    for note in app.stacks.notes().iter().take(NOTES) {
        for (index, text) in wrapped(note, usize::from(area.width).saturating_sub(2), 2).iter().enumerate() {
            let sign = if index == 0 { glyph::WARNING } else { " " };
            notes.push(Line::styled(format!("{sign} {text}"), app.palette.of(Role::Warning)));
        }
    }
    // Frames take precedence over the legend of letters.
    let lines = app.stacks.rows().len() + notes.len();
    let legend = usize::from(area.height) > lines || area.height > LEGEND;
    let [tree, said, key] = Layout::vertical([
        Constraint::Fill(1),
        Constraint::Length(notes.len() as u16),
        Constraint::Length(legend.into()),
    ])
    .areas(area);
    frames::draw(app, tree, buffer, hits);
    headline::lines(&notes, said, buffer);
    if legend {
        frames::legend(app.palette, key, buffer);
    }
}
