//! The place of a rank on a heatmap, and the ranks at a place: pure arithmetic; each computation is the
//! inverse of the other.
//!
//! Ranks come in groups (hosts) of equal size; a slot is a rank's place among them, `group * size +
//! position`. A host with fewer ranks than the largest host leaves slots empty.

use std::ops::Range;

/// The number of groups, and of slots in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub groups: usize,
    pub size: usize,
}

/// Densities, from roomy to dense. The first one that fits is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Density {
    /// A cell is wide enough for its figure.
    Figures,
    /// Two columns per rank.
    Double,
    /// One column per rank.
    Single,
    /// Two ranks, one above the other, per column.
    Half,
    /// Several ranks per cell, which shows the worst of them.
    Folded { ranks: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grid {
    slots: usize,
    pub density: Density,
    /// Slots in one cell: 1 unless folded.
    fold: usize,
    /// Number of cells of a group, and how many of them fit into a line.
    size: usize,
    chunk: usize,
    /// Number of groups side by side, and the columns between two of them.
    abreast: usize,
    gap: usize,
    /// Columns from one cell to the next, and the number of them that a cell fills.
    pitch: usize,
    cell: usize,
    lines: usize,
    /// Terminal lines of one line of cells, if it is not half a terminal line.
    tall: usize,
    halves: bool,
}

/// A cell's place: columns, and a line counted in cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub x: usize,
    pub line: usize,
    pub width: usize,
}

/// One size of cells.
#[derive(Clone, Copy)]
struct Step {
    density: Density,
    pitch: usize,
    cell: usize,
    gap: usize,
}

impl Step {
    const fn new(density: Density, pitch: usize, cell: usize, gap: usize) -> Self {
        Self { density, pitch, cell, gap }
    }
}

/// The sizes that are tried, in this order.
const LADDER: [Step; 10] = [
    Step::new(Density::Figures, 12, 11, 3),
    Step::new(Density::Figures, 10, 9, 3),
    Step::new(Density::Figures, 8, 7, 3),
    Step::new(Density::Figures, 7, 6, 3),
    Step::new(Density::Figures, 6, 5, 3),
    Step::new(Density::Figures, 5, 4, 3),
    Step::new(Density::Double, 3, 2, 2),
    Step::new(Density::Double, 2, 2, 2),
    Step::new(Density::Single, 1, 1, 1),
    Step::new(Density::Half, 1, 1, 1),
];

/// Largest height of a line of cells.
const TALLEST: usize = 2;

impl Grid {
    /// The roomiest grid of this shape in `width` columns and `height` lines. `halves`: whether half blocks
    /// can be distinguished, which needs colours.
    pub fn fit(shape: Shape, width: usize, height: usize, halves: bool) -> Self {
        let (width, height) = (width.max(1), height.max(1));
        let fitting = || {
            LADDER
                .into_iter()
                .filter(|step| halves || step.density != Density::Half)
                .filter_map(|step| Self::unfolded(shape, step, width))
                .filter(|grid| grid.height() <= height)
        };
        // A line is named by its first host. If there are enough lines, each has only one host.
        let mut alone =
            fitting().map(|grid| grid.one_abreast(shape.groups)).filter(|grid| grid.height() <= height);
        // A host in one line is easier to read than a figure in every cell.
        let whole = |grid: &Self| grid.chunk == grid.size && grid.cell > 1;
        let grid = alone
            .find(whole)
            .or_else(|| fitting().find(whole))
            .or_else(|| fitting().next())
            .unwrap_or_else(|| Self::folded(shape, width, height, halves));
        let tall = if grid.cell > 1 { (height / grid.lines.max(1)).clamp(1, TALLEST) } else { 1 };
        Self { tall, ..grid }
    }

    fn unfolded(shape: Shape, step: Step, width: usize) -> Option<Self> {
        let Step { density, pitch, cell, gap } = step;
        let size = shape.size.max(1);
        // The gap after the last cell of a line may exceed the edge.
        let fits = (width + pitch - cell) / pitch;
        let chunk = size.min(fits);
        if chunk == 0 {
            return None;
        }
        let group = chunk * pitch + gap;
        let abreast = if chunk < size { 1 } else { ((width + gap + pitch - cell) / group).max(1) };
        let abreast = abreast.min(shape.groups.max(1));
        Some(Self {
            slots: shape.groups * size,
            density,
            fold: 1,
            size,
            chunk,
            abreast,
            gap,
            pitch,
            cell,
            lines: shape.groups.div_ceil(abreast) * size.div_ceil(chunk),
            tall: 1,
            halves: density == Density::Half,
        })
    }

    /// The same grid, with separate lines for each group.
    fn one_abreast(self, groups: usize) -> Self {
        Self { abreast: 1, lines: groups * self.size.div_ceil(self.chunk), ..self }
    }

    /// A grid with as many ranks per cell as necessary. Their number is a power of two, so that the ranks of
    /// a host stay together.
    fn folded(shape: Shape, width: usize, height: usize, halves: bool) -> Self {
        let size = shape.size.max(1);
        let slots = shape.groups * size;
        let lines = if halves { height * 2 } else { height };
        let mut fold = 2;
        loop {
            let cells = slots.div_ceil(fold);
            let per_group = (size / fold).max(1);
            let chunk = if per_group <= width { width - width % per_group } else { width };
            let needed = cells.div_ceil(chunk);
            if needed <= lines {
                return Self {
                    slots,
                    density: Density::Folded { ranks: fold },
                    fold,
                    size: cells,
                    chunk: chunk.min(cells.max(1)),
                    abreast: 1,
                    gap: 0,
                    pitch: 1,
                    cell: 1,
                    lines: needed,
                    tall: 1,
                    halves,
                };
            }
            fold *= 2;
        }
    }

    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Number of lines of cells.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Number of terminal lines per line of cells. It is 1 for half blocks too, although two lines of half
    /// blocks share a terminal line.
    pub fn tall(&self) -> usize {
        self.tall
    }

    /// Whether two lines of cells share a terminal line.
    pub fn halves(&self) -> bool {
        self.halves
    }

    /// Columns between two cells of a group.
    pub fn spacing(&self) -> usize {
        self.pitch - self.cell
    }

    /// Columns of the widest line.
    pub fn width(&self) -> usize {
        let group = self.chunk * self.pitch - self.spacing();
        self.abreast * (group + self.gap + self.spacing()) - self.gap - self.spacing()
    }

    /// Terminal lines.
    pub fn height(&self) -> usize {
        if self.halves { self.lines.div_ceil(2) } else { self.lines * self.tall }
    }

    /// Where slot `slot` is drawn.
    pub fn cell_of(&self, slot: usize) -> Place {
        let (group, position) = match self.density {
            Density::Folded { .. } => (0, slot / self.fold),
            _ => (slot / self.size, slot % self.size),
        };
        let lines_each = self.size.div_ceil(self.chunk);
        let across =
            group % self.abreast * (self.chunk * self.pitch + self.gap) + position % self.chunk * self.pitch;
        let line = group / self.abreast * lines_each + position / self.chunk;
        Place { x: across, line, width: self.cell }
    }

    /// The slots drawn in column `x` of line `line`; `None` between cells and outside of the map.
    pub fn slots_at(&self, x: usize, line: usize) -> Option<Range<usize>> {
        let lines_each = self.size.div_ceil(self.chunk);
        let across = self.chunk * self.pitch + self.gap;
        let within = x % across;
        let position = line % lines_each * self.chunk + within / self.pitch;
        let outside = line >= self.lines
            || x / across >= self.abreast
            || within / self.pitch >= self.chunk
            || within % self.pitch >= self.cell
            || position >= self.size;
        if outside {
            return None;
        }
        let group = line / lines_each * self.abreast + x / across;
        let first = match self.density {
            Density::Folded { ranks } => position * ranks,
            _ => group * self.size + position,
        };
        (first < self.slots).then(|| first..(first + self.fold).min(self.slots))
    }
}

#[cfg(test)]
mod tests;
