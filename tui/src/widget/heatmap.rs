//! Draws a [`Grid`]: one cell per rank, or one for several ranks.

use ratatui::{
    buffer::Buffer,
    layout::{Position, Rect},
    style::{Modifier, Style},
};
use xpu_model::figure;

use super::{
    cell::{Cell, draw_halves},
    grid::{Density, Grid, Place},
};
use crate::palette::{Palette, Role};

#[derive(Debug)]
pub struct Heatmap<'a, Cells> {
    pub grid: &'a Grid,
    /// The cell of a slot.
    pub cells: Cells,
    pub selected: Option<usize>,
    pub palette: Palette,
}

impl<Cells: Fn(usize) -> Cell> Heatmap<'_, Cells> {
    pub fn draw(&self, area: Rect, buffer: &mut Buffer) {
        if self.grid.halves() {
            self.draw_halves(area, buffer);
        } else {
            self.draw_whole(area, buffer);
        }
    }

    /// The worst of the slots at a place.
    fn at(&self, x: usize, line: usize) -> Option<Cell> {
        self.grid.slots_at(x, line)?.map(&self.cells).reduce(Cell::worse)
    }

    fn is_chosen(&self, x: usize, line: usize) -> bool {
        let slots = self.selected.zip(self.grid.slots_at(x, line));
        slots.is_some_and(|(slot, slots)| slots.contains(&slot))
    }

    fn draw_whole(&self, area: Rect, buffer: &mut Buffer) {
        for line in 0..self.grid.lines() {
            let mut x = 0;
            while x < usize::from(area.width) {
                let Some(slots) = self.grid.slots_at(x, line) else {
                    x += 1;
                    continue;
                };
                let place = self.grid.cell_of(slots.start);
                let cell = slots.clone().map(&self.cells).reduce(Cell::worse).unwrap_or(Cell::Absent);
                let selected = self.selected.is_some_and(|slot| slots.contains(&slot));
                self.draw_cell(place, cell, selected, area, buffer);
                x += place.width;
            }
        }
    }

    fn draw_cell(&self, place: Place, cell: Cell, selected: bool, area: Rect, buffer: &mut Buffer) {
        let (text, style) = self.look(cell, place.width);
        let tall = self.grid.tall();
        let x = area.x + place.x as u16;
        for row in 0..tall {
            let y = area.y + (place.line * tall + row) as u16;
            if y >= area.bottom() {
                return;
            }
            if row == 0 {
                buffer.set_stringn(x, y, &text, place.width, style);
            } else if let (Some(ground), true) = (style.bg, self.palette.has_halves() && row == tall - 1) {
                // Half an empty line before the next host.
                buffer.set_stringn(x, y, "▀".repeat(place.width), place.width, Style::new().fg(ground));
            } else {
                buffer.set_stringn(x, y, self.blank(cell, place.width), place.width, style);
            }
            if selected && row == 0 {
                self.mark(x, y, place.width, area, buffer);
            }
        }
    }

    /// Marks a cell: with brackets if there is room for them between cells, otherwise with a sign on the
    /// cell.
    fn mark(&self, x: u16, y: u16, width: usize, area: Rect, buffer: &mut Buffer) {
        let loud = self.palette.of(Role::Strong);
        if self.grid.spacing() == 0 {
            buffer[(x, y)].set_symbol("◆").modifier.insert(Modifier::BOLD);
            return;
        }
        let after = x + width as u16;
        if x > 0 {
            buffer.set_string(x - 1, y, "▐", loud);
        }
        if after < area.right() + 1 && after < buffer.area.right() {
            buffer.set_string(after, y, "▌", loud);
        }
    }

    fn look(&self, cell: Cell, width: usize) -> (String, Style) {
        if self.grid.density != Density::Figures {
            return cell.look(self.palette, width);
        }
        let centred = |text: &str| format!("{text:^width$}");
        match cell {
            Cell::Stale { value: Some(value) } => {
                (centred(&figure::four_columns(value)), self.palette.stale())
            }
            Cell::Value { value, sign, .. } => {
                let text = figure::four_columns(value);
                let sign = sign.filter(|_| text.len() < width).unwrap_or_default();
                (centred(&format!("{sign}{text}")), self.ground(cell))
            }
            other => other.look(self.palette, width),
        }
    }

    /// A cell without text, or with its figure if it has one.
    fn blank(&self, cell: Cell, width: usize) -> String {
        if self.grid.density == Density::Figures {
            " ".repeat(width)
        } else {
            cell.blank(self.palette, width)
        }
    }

    fn ground(&self, cell: Cell) -> Style {
        cell.ground(self.palette)
    }

    fn draw_halves(&self, area: Rect, buffer: &mut Buffer) {
        for row in 0..self.grid.height().min(usize::from(area.height)) {
            for x in 0..usize::from(area.width) {
                let (upper, lower) = (self.at(x, row * 2), self.at(x, row * 2 + 1));
                let place = Position { x: area.x + x as u16, y: area.y + row as u16 };
                draw_halves(upper, lower, place, self.palette, buffer);
                if self.is_chosen(x, row * 2) || self.is_chosen(x, row * 2 + 1) {
                    self.mark(place.x, place.y, 1, area, buffer);
                }
            }
        }
    }
}
