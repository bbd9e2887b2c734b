//! Rows of cells, one per moment, the latest on the right.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
};

use super::cell::{Cell, draw_halves};
use crate::palette::Palette;

/// The numbers of rows and moments, and how many of them one cell represents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    pub rows: usize,
    /// Ranks per row.
    pub fold: usize,
    /// Columns of the past per cell.
    pub span: usize,
    /// Whether two rows share a terminal line.
    pub halves: bool,
}

/// Possible numbers of columns in one cell, so that the cell covers a usual time span.
const SPANS: [usize; 7] = [1, 2, 3, 4, 6, 12, 24];

impl Frame {
    /// Fits `rows` ranks, with `size` of them per host, and `columns` moments into `width` columns and
    /// `height` lines. `halves`: whether half blocks can be distinguished.
    pub fn fit(rows: usize, size: usize, columns: usize, width: usize, height: usize, halves: bool) -> Self {
        let halves = halves && rows > height;
        let lines = height.max(1) * if halves { 2 } else { 1 };
        // The ranks of a host stay together, as do the parts of a host that is divided.
        let needed = rows.div_ceil(lines).max(1);
        let fold = (needed..size).find(|fold| size.is_multiple_of(*fold));
        let fold = fold.unwrap_or_else(|| needed.next_multiple_of(if needed > 1 { size.max(1) } else { 1 }));
        let fits = |span: &usize| columns.div_ceil(*span) < width.max(2);
        let span = SPANS.into_iter().find(fits).unwrap_or(SPANS[SPANS.len() - 1]);
        Self { rows: rows.div_ceil(fold), fold, span, halves }
    }

    /// Terminal lines.
    pub fn height(&self) -> usize {
        if self.halves { self.rows.div_ceil(2) } else { self.rows }
    }

    /// Rows drawn in a terminal line.
    pub fn rows_at(&self, line: usize) -> std::ops::Range<usize> {
        let each = if self.halves { 2 } else { 1 };
        (line * each).min(self.rows)..((line + 1) * each).min(self.rows)
    }
}

#[derive(Debug)]
pub struct TimeMap<'a> {
    pub frame: Frame,
    /// The cells of each row, the latest last.
    pub cells: &'a [Vec<Cell>],
    /// Columns of the terminal per cell.
    pub wide: u16,
    pub palette: Palette,
}

impl TimeMap<'_> {
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        for line in 0..self.frame.height().min(usize::from(area.height)) {
            let rows = &self.cells[self.frame.rows_at(line)];
            let space = usize::from(area.width / self.wide.max(1));
            let longest = rows.iter().map(Vec::len).max().unwrap_or(0).min(space);
            for back in 1..=longest {
                let of = |row: usize| {
                    let row = rows.get(row)?;
                    row.get(row.len().checked_sub(back)?).copied()
                };
                let begin = area.right() - back as u16 * self.wide;
                let y = area.y + line as u16;
                if self.frame.halves {
                    for x in begin..begin + self.wide {
                        draw_halves(of(0), of(1), Position { x, y }, self.palette, buffer);
                    }
                } else if let Some(cell) = of(0).filter(|cell| *cell != Cell::Absent) {
                    let (text, style) = cell.look(self.palette, usize::from(self.wide));
                    buffer.set_string(begin, y, text, style);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_a_host_stay_together_and_all_the_time_is_shown() {
        let few = Frame::fit(8, 8, 20, 60, 12, true);
        assert_eq!(few, Frame { rows: 8, fold: 1, span: 1, halves: false });
        let more = Frame::fit(64, 8, 200, 50, 13, true);
        assert_eq!(more, Frame { rows: 16, fold: 4, span: 6, halves: true });
        assert_eq!((more.height(), more.rows_at(7)), (8, 14..16));
        assert_eq!(Frame::fit(64, 8, 200, 50, 13, false).fold, 8);
        assert_eq!(Frame::fit(1_024, 8, 200, 50, 13, true).fold, 40);
        assert_eq!(Frame::fit(10_000, 8, 360, 28, 6, true).fold, 840);
        assert_eq!(Frame::fit(0, 0, 0, 0, 0, true).height(), 0);
        assert_eq!(Frame::fit(12, 1, 9, 28, 6, true).fold, 1);
    }
}
