//! The rank's communicators: their members, and whether the rank keeps up.

use ratatui::{buffer::Buffer, layout::Rect, text::Line};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::figure;

use crate::{
    action::Action,
    app::{App, Inspection, Membership},
    glyph::UNKNOWN,
    hits::{Hits, Target},
    palette::Role,
    view::panel::Title,
    widget::{
        row::{self, Column},
        wrap::{cut, cut_at_word, cut_words},
    },
};

/// A communicator's name, its ranks, the place in it, and counts.
const COLUMNS: [Column; 5] = [
    Column::words(12),
    Column::words(10),
    Column::figure(9).whole(),
    Column::figure(9).whole(),
    Column::figure(6).whole(),
];
/// Smallest width at which the first two columns are wider, and the last activity is shown.
const ROOMY: usize = 68;
const MORE: usize = 4;
/// Runs of ranks that are named.
const RUNS: usize = 2;

pub(super) fn title(rank: &Inspection) -> Title<'static> {
    let count = rank.memberships.len();
    Title { name: "Communicators", about: String::new(), right: figure::count(count as u64) }
}

pub(super) fn draw(app: &App, rank: &Inspection, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let muted = app.palette.of(Role::Muted);
    if rank.memberships.is_empty() {
        let text = cut_at_word("none: NCCL was not called yet", usize::from(area.width));
        buffer.set_line(area.x, area.y, &Line::styled(text, muted), area.width);
        return;
    }
    let width = usize::from(area.width);
    let head = ["communicator", "ranks", "place", "entered", "behind", "last"].map(str::to_owned);
    buffer.set_line(area.x, area.y, &Line::styled(line(&head, width), muted), area.width);
    for (one, y) in rank.memberships.iter().zip(area.y + 1..area.bottom()) {
        let behind = one.most.saturating_sub(one.entered);
        let role = if behind > 0 && app.job_view.stall().is_some() { Role::Warning } else { Role::Text };
        let text = line(&cells(one, behind), width);
        buffer.set_line(area.x, y, &Line::styled(text, app.palette.of(role)), area.width);
        hits.put(Rect { y, height: 1, ..area }, Target::Do(Action::ShowCommunicator(one.id)));
    }
}

fn cells(one: &Membership, behind: u64) -> [String; 6] {
    let last = one.last.map_or_else(
        || UNKNOWN.to_owned(),
        |(operation, bytes)| format!("{operation} {}", figure::bytes(bytes)),
    );
    let place = format!("{} of {}", one.rank, one.size);
    let entered = figure::count_within(7, one.entered);
    [one.title.clone(), one.ranks.brief(RUNS), place, entered, figure::count(behind), last]
}

/// The last cell is shown if there is room.
fn line(cells: &[String; 6], width: usize) -> String {
    let more = if width >= ROOMY { MORE } else { 0 };
    let mut columns = COLUMNS;
    for column in &mut columns[..2] {
        column.width += more;
    }
    let (line, last) = (row::line(&columns, cells), &cells[columns.len()]);
    let space = if more > 0 { width.saturating_sub(line.width() + 2) } else { 0 };
    cut(format!("{line}  {}", cut_words(last, space)).trim_end(), width)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_activity_is_cut_between_words_and_a_size_keeps_its_unit() {
        let cells = ["9ca792c9", "0-63", "37 of 64", "71,760", "0", "AllReduce 64.0 MiB"].map(str::to_owned);
        let shown = "9ca792c9         0-63            37 of 64    71,760      0";
        for (width, last) in [(78, "  AllReduce 64.0 MiB"), (77, "  AllReduce …"), (70, ""), (67, "")] {
            let shown =
                if width < ROOMY { "9ca792c9     0-63        37 of 64    71,760      0" } else { shown };
            assert_eq!(line(&cells, width), format!("{shown}{last}"), "{width}");
        }
    }
}
