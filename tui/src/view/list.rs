//! A list: a head, and lines of cells below it, one of them selected. Only visible lines are created.

use ratatui::{buffer::Buffer, layout::Rect, style::Style};

use super::panel::window;
use crate::{
    glyph,
    palette::{Palette, Role},
    widget::row,
};

/// The content of a line under a column's head.
pub(super) type Cell = (String, Role);

#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    pub head: &'static str,
    place: row::Column,
    /// If there is no room, the column with the highest number is left out first; a column with number 0 is
    /// never left out.
    pub spare: u8,
}

impl Column {
    pub(super) const fn figure(head: &'static str, width: usize, spare: u8) -> Self {
        Self { head, place: row::Column::figure(width), spare }
    }

    pub(super) const fn text(head: &'static str, width: usize, spare: u8) -> Self {
        Self { head, place: row::Column::words(width), spare }
    }
}

/// The list to draw.
#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    pub columns: &'a [Column],
    /// The sort column, and whether its figures grow downwards.
    pub sorted: Option<(usize, bool)>,
    pub selected: Option<usize>,
    pub lines: usize,
}

/// Columns between two columns, and before the first, for the cursor.
const GAP: usize = 2;
const MARGIN: usize = 1;

impl List<'_> {
    /// The last column takes the remaining space if it is text.
    fn place(&self, kept: &[usize], at: usize, left: u16) -> row::Column {
        let place = self.columns[at].place;
        if kept.last() == Some(&at) && !place.is_figure() {
            place.of_width(usize::from(left).max(place.width))
        } else {
            place
        }
    }

    /// Draws as many lines as fit, and returns which.
    pub(super) fn draw(
        &self,
        palette: Palette,
        area: Rect,
        buffer: &mut Buffer,
        cells: impl Fn(usize) -> Vec<Cell>,
    ) -> std::ops::Range<usize> {
        let kept = self.kept(usize::from(area.width));
        if area.height == 0 {
            return 0..0;
        }
        let mut x = area.x + MARGIN as u16;
        for &at in &kept {
            let column = &self.columns[at];
            let sorted = self.sorted.filter(|&(by, _)| by == at);
            let arrow = sorted.map_or("", |(_, rising)| if rising { glyph::RISING } else { glyph::FALLING });
            let style = palette.of(if sorted.is_some() { Role::Accent } else { Role::Muted });
            let text = column.place.cell(&format!("{}{arrow}", column.head));
            buffer.set_stringn(x, area.y, text, usize::from(area.right().saturating_sub(x)), style);
            x += (column.place.width + GAP) as u16;
        }
        let body = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let shown = window(self.selected, self.lines, usize::from(body.height));
        for (line, y) in shown.clone().zip(body.y..) {
            self.line(palette, &kept, line, &cells(line), Rect { y, height: 1, ..body }, buffer);
        }
        shown
    }

    fn line(
        &self,
        palette: Palette,
        kept: &[usize],
        line: usize,
        cells: &[Cell],
        area: Rect,
        buffer: &mut Buffer,
    ) {
        let chosen = self.selected == Some(line);
        let ground = if chosen { palette.selected() } else { Style::new() };
        buffer.set_style(area, ground);
        let mut x = area.x + MARGIN as u16;
        for &at in kept {
            let Some((text, role)) = cells.get(at) else { continue };
            let place = self.place(kept, at, area.right().saturating_sub(x));
            let quiet = chosen && matches!(role, Role::Text | Role::Faint | Role::Muted);
            let style = if quiet { ground } else { ground.patch(palette.of(*role)) };
            let space = usize::from(area.right().saturating_sub(x));
            buffer.set_stringn(x, area.y, place.cell(text), space, style);
            x += (place.width + GAP) as u16;
        }
        if chosen {
            buffer.set_string(area.x, area.y, glyph::CURSOR, ground.patch(palette.of(Role::Accent)));
        }
    }

    /// The columns that fit.
    fn kept(&self, width: usize) -> Vec<usize> {
        let mut kept: Vec<usize> = (0..self.columns.len()).collect();
        let taken = |kept: &[usize]| {
            MARGIN
                + kept.iter().map(|&at| self.columns[at].place.width + GAP).sum::<usize>().saturating_sub(GAP)
        };
        let spare = |&at: &usize| self.columns[at].spare;
        while taken(&kept) > width
            && let Some(most) = kept.iter().copied().filter(|at| spare(at) > 0).max_by_key(spare)
        {
            kept.retain(|&at| at != most);
        }
        kept
    }
}

/// A figure, or the sign for an unknown one.
pub(super) fn known(text: Option<String>) -> Cell {
    text.map_or_else(|| (glyph::UNKNOWN.to_owned(), Role::Faint), |text| (text, Role::Text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_spare_columns_give_way_first() {
        let columns = [
            Column::text("a", 10, 0),
            Column::figure("b", 6, 1),
            Column::figure("c", 6, 3),
            Column::figure("d", 6, 2),
        ];
        let list = List { columns: &columns, sorted: None, selected: None, lines: 0 };
        assert_eq!(list.kept(35), [0, 1, 2, 3]);
        assert_eq!(list.kept(34), [0, 1, 3]);
        assert_eq!(list.kept(20), [0, 1]);
        assert_eq!(list.kept(3), [0]);
    }
}
