//! Communicators: the ranks that entered, wait and are late, and how fast data moves in each communicator.

mod calls;
mod detail;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::Line,
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;

use super::{
    filtered, header,
    panel::{self, Title, window},
};
use crate::{
    app::{App, Communicator, Communicators, Entered},
    glyph,
    hits::{Hits, Target},
    palette::Role,
    widget::{
        row::{self, Column},
        wrap::{cut, cut_at_word, cut_words},
    },
    width::Breakpoint,
};

/// Number of runs of ranks in the list.
const RUNS: usize = 3;

/// Columns of the longest name, and of the ranks that are behind.
const LONGEST: usize = 28;
const BEHIND: usize = 14;

/// Number of kinds of communicators in the title.
const KINDS: usize = 4;

/// Number of lines of the list before the detail gets the space.
const LISTED: usize = 10;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let below = header::draw_brief(app, breakpoint, area, buffer);
    let frame = if breakpoint == Breakpoint::Wide { 3 } else { 2 };
    let listed = app.communicators.lines.len().clamp(1, LISTED.min(usize::from(below.height) / 3)) as u16;
    let [list, rest] =
        Layout::vertical([Constraint::Length(listed + frame), Constraint::Fill(1)]).areas(below);
    draw_list(app, breakpoint, list, buffer, hits);
    if let Some(selected) = app.communicators.selected() {
        detail::draw(app, breakpoint, selected, rest, buffer, hits);
    }
}

fn draw_list(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let all = &app.communicators.lines;
    let uneven = all.iter().filter(|one| !one.behind.is_empty()).count();
    let behind = if uneven > 0 {
        format!("{} where a rank is behind", figure::count(uneven as u64))
    } else {
        String::new()
    };
    let of = app.listing.filter.as_ref().map_or_else(String::new, |_| format!("of {}", filtered::ranks(app)));
    let about = [behind, of].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
    let about = format!("{about}{}", filtered::filter(app));
    let right = count(&app.communicators);
    let inner =
        panel::draw(app.palette, breakpoint, Title { name: "Communicators", about, right }, area, buffer);
    if all.is_empty() {
        let text = format!(
            "No communicators yet. They appear with the first NCCL collective. {} lists what the hooks of a host miss, such as static NCCL without its profiler plugin.",
            app.key("hosts"),
        );
        let text = if filtered::is_empty(app) { filtered::nobody(app) } else { text };
        panel::paragraph(app.palette, Role::Muted, &text, inner, buffer);
        return;
    }
    let names = all.iter().map(|one| title(one).width()).max().unwrap_or(0).clamp(12, LONGEST);
    let head =
        line(names, ["communicator", "ranks", "entered", "done", "behind", "last"], usize::from(inner.width));
    buffer.set_line(inner.x, inner.y, &Line::styled(head, app.palette.of(Role::Muted)), inner.width);
    let body = Rect { y: inner.y + 1, height: inner.height.saturating_sub(1), ..inner };
    let shown = window(Some(app.communicators.at()), all.len(), usize::from(body.height));
    for (index, y) in shown.zip(body.y..) {
        let chosen = index == app.communicators.at();
        let ground = if chosen { app.palette.selected() } else { Style::new() };
        let place = Rect { y, height: 1, ..body };
        buffer.set_style(place, ground);
        hits.put(place, Target::Line(index));
        let one = &all[index];
        let role = if one.behind.is_empty() { Role::Text } else { Role::Warning };
        let style = if chosen && role == Role::Text { ground } else { ground.patch(app.palette.of(role)) };
        buffer.set_line(
            body.x,
            y,
            &Line::styled(row(one, names, usize::from(body.width)), style),
            body.width,
        );
        if chosen {
            buffer.set_string(body.x, y, glyph::CURSOR, ground.patch(app.palette.of(Role::Accent)));
        }
    }
}

/// `3 communicators`; of many, by kind: `168 communicators: tp ×128, dp ×40`
fn count(all: &Communicators) -> String {
    let count = figure::counted(all.total, "communicator", "communicators");
    if all.total == all.kinds.len() || all.lines.len() == all.total {
        return count;
    }
    let kinds: Vec<_> = all.kinds.iter().take(KINDS).map(ToString::to_string).collect();
    let more = if all.kinds.len() > KINDS { ", …" } else { "" };
    format!("{count}: {}{more}", kinds.join(", "))
}

fn title(one: &Communicator) -> String {
    if let Some(kind) = &one.kind {
        return kind.to_string();
    }
    if one.name.is_empty() { one.id.to_string() } else { format!("{} {}", one.id, one.name) }
}

fn row(one: &Communicator, names: usize, width: usize) -> String {
    let ranks = match &one.kind {
        Some(_) => format!("{} each", one.size),
        None => format!("{} of {}", one.ranks.len(), one.size),
    };
    let Entered { least, most } = one.entered;
    let behind = if one.behind.is_empty() {
        "none".to_owned()
    } else {
        format!("{} {} by {}", glyph::WARNING, one.behind.brief(RUNS), figure::count(most - least))
    };
    let last = one.last.map_or_else(
        || glyph::UNKNOWN.to_owned(),
        |(operation, bytes)| format!("{operation} {}", figure::bytes(bytes)),
    );
    line(
        names,
        [&title(one), &ranks, &figure::count(most), &figure::count(one.completed), &behind, &last],
        width,
    )
}

fn line(names: usize, cells: [&str; 6], width: usize) -> String {
    let [name, ranks, entered, done, behind, last] = cells;
    let count = Column::figure(9).whole();
    let columns = [Column::words(names), count, count, count];
    let figures = format!(" {}  ", row::line(&columns, &[name, ranks, entered, done]));
    let space = width.saturating_sub(figures.width());
    let behind = cut_at_word(behind, space.min(BEHIND));
    let last = cut_words(last, space.saturating_sub(BEHIND + 1));
    cut(format!("{figures}{} {last}", Column::name(BEHIND).cell(&behind)).trim_end(), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_do_not_fit_are_left_out_whole() {
        let cells = ["9ca792c9", "64 of 64", "71,760", "71,760", "none", "AllReduce 64.0 MiB"];
        let shown = " 9ca792c9      64 of 64    71,760    71,760  none";
        let air = " ".repeat(BEHIND - "none".len() + 1);
        assert_eq!(line(12, cells, 78), format!("{shown}{air}AllReduce 64.0 MiB"));
        assert_eq!(line(12, cells, 77), format!("{shown}{air}AllReduce …"));
        assert_eq!((line(12, cells, 65), line(12, cells, 49)), (shown.to_owned(), shown.to_owned()));
        let named = ["9ca792c9 pipeline", "", "", "", "▲ 3,17,31 by 1,204", ""];
        let cut = line(12, named, 80);
        assert!(cut.starts_with(" 9ca792c9 …  ") && cut.ends_with("▲ 3,17,31 by …"), "{cut}");
    }
}
