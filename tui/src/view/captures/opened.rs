//! The content of the opened file, and commands for it.

use std::path::Path;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use xpu_model::figure;

use super::super::{
    headline,
    panel::{self, Title},
};
use crate::{
    app::{App, Opened},
    file_loader::Summary,
    glyph,
    palette::Role,
    widget::{wrap::cut, wrap::cut_at_word, wrap::wrapped},
    width::Breakpoint,
};

/// Columns of a bar for 100 % of the time.
const BAR: usize = 60;

/// Largest number of lines of one sentence.
const SENTENCE: usize = 2;

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let (path, read) = match &app.files.opened {
        Opened::Nothing => return,
        Opened::Coming(path) => (path, None),
        Opened::Here(path, summary) => (path, Some(summary)),
    };
    let name = path.display().to_string();
    let title = Title { name: &name, about: "Esc closes".to_owned(), ..Title::default() };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let width = usize::from(inner.width);
    match read {
        None => {
            panel::paragraph(
                app.palette,
                Role::Muted,
                &format!("{} reading it", glyph::WAITING),
                inner,
                buffer,
            );
        }
        Some(Err(why)) => {
            panel::paragraph(app.palette, Role::Alarm, &format!("{} {why}", glyph::ALARM), inner, buffer);
        }
        Some(Ok(summary)) => {
            // The commands for the file are always visible.
            let commands = commands(app, path, summary, width);
            let [above, below] = ratatui::layout::Layout::vertical([
                ratatui::layout::Constraint::Fill(1),
                ratatui::layout::Constraint::Length(commands.len() as u16),
            ])
            .areas(inner);
            headline::lines(&contents(app, summary, width), above, buffer);
            headline::lines(&commands, below, buffer);
        }
    }
}

fn contents(app: &App, summary: &Summary, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> =
        summary.about.iter().flat_map(|text| wrapped(text, width, SENTENCE)).map(Line::raw).collect();
    if !summary.shares.is_empty() {
        lines.extend(shares(app, summary, width));
    }
    let names = summary.tops.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    lines.extend(summary.tops.iter().map(|(name, said)| {
        let said = cut_at_word(said, width.saturating_sub(names + 2));
        Line::from(vec![
            Span::styled(format!("{name:<names$}  "), app.palette.of(Role::Strong)),
            Span::styled(said, app.palette.of(Role::Muted)),
        ])
    }));
    lines
}

/// A step as a bar, and the meaning of its pieces.
fn shares(app: &App, summary: &Summary, width: usize) -> [Line<'static>; 2] {
    let signs = [
        (glyph::SOLID, Role::Accent),
        (glyph::SHADED, Role::Warning),
        (glyph::SOLID, Role::Good),
        (glyph::UNCLEAR, Role::Faint),
    ];
    let step =
        summary.step_ms.map_or_else(String::new, |step| format!("  {} ms a step", figure::tenths(step)));
    let bar = BAR.min(width.saturating_sub(step.len()));
    let (mut spans, mut words) = (Vec::new(), Vec::new());
    let (mut passed, mut drawn) = (0.0, 0);
    for ((name, share), (sign, role)) in summary.shares.iter().zip(signs) {
        passed += share;
        let to = ((passed * bar as f64).round() as usize).clamp(drawn, bar);
        spans.push(Span::styled(sign.repeat(to - drawn), app.palette.of(role)));
        words.push(Span::styled(format!("{sign} "), app.palette.of(role)));
        words.push(Span::raw(format!("{name} {}   ", figure::percent(*share))));
        drawn = to;
    }
    spans.push(Span::styled(step, app.palette.of(Role::Muted)));
    [Line::from(spans), Line::from(words)]
}

fn commands(app: &App, path: &Path, summary: &Summary, width: usize) -> Vec<Line<'static>> {
    let file = quoted(&path.display().to_string());
    let line = |key: &str, command: String, does: &str| {
        let text = cut(&format!("{command:<1}"), width.saturating_sub(4));
        Line::from(vec![
            Span::styled(
                format!("{key:<2}"),
                app.palette.of(Role::Accent).patch(app.palette.of(Role::Strong)),
            ),
            Span::styled(text, app.palette.of(Role::Strong)),
            Span::styled(format!("   {does}"), app.palette.of(Role::Muted)),
        ])
    };
    let mut lines = vec![line("", format!("xpu-top --replay {file}"), "shows it on this screen")];
    if summary.is_capture {
        lines.push(line("H", format!("xpu-top report {file}"), "H writes it as a page"));
        let trace = quoted(&path.with_extension("pftrace").display().to_string());
        lines.push(line("e", format!("xpu-top export {file} --perfetto {trace}"), "e writes it"));
    }
    lines
}

/// Quoted, so that a shell reads one word.
fn quoted(name: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-/+:".contains(letter);
    if name.chars().all(plain) && !name.starts_with('-') {
        name.to_owned()
    } else {
        format!("'./{}'", name.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn a_name_is_one_word_to_the_shell_and_never_an_option() {
        assert_eq!(quoted("xpu-top-a-1.xpucap"), "xpu-top-a-1.xpucap");
        assert_eq!(quoted("a b.bin"), "'./a b.bin'");
        assert_eq!(quoted("it's.bin"), r"'./it'\''s.bin'");
        assert_eq!(quoted("-rf.bin"), "'./-rf.bin'");
    }
}
