//! Rows of cells under the heads of their columns: the alignment of a text, and how it is cut.

use unicode_width::UnicodeWidthStr as _;

use super::wrap::{cut, cut_at_word};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Align {
    Left,
    Right,
}

/// How a text that is wider than its column is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Elision {
    BetweenWords,
    AtAnyLetter,
    /// It is not cut, and the following cells move to the right.
    Never,
}

/// A column of a table: its width as a terminal counts it, and how its cells look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub width: usize,
    align: Align,
    elision: Elision,
}

impl Column {
    /// A column of words: left-aligned, cut between two words.
    pub const fn words(width: usize) -> Self {
        Self { width, align: Align::Left, elision: Elision::BetweenWords }
    }

    /// A column of names: left-aligned, cut at any letter.
    pub const fn name(width: usize) -> Self {
        Self { width, align: Align::Left, elision: Elision::AtAnyLetter }
    }

    /// A column of figures: right-aligned.
    pub const fn figure(width: usize) -> Self {
        Self { width, align: Align::Right, elision: Elision::AtAnyLetter }
    }

    /// The column with cells that are never cut.
    pub const fn whole(self) -> Self {
        Self { elision: Elision::Never, ..self }
    }

    pub const fn of_width(self, width: usize) -> Self {
        Self { width, ..self }
    }

    pub fn is_figure(self) -> bool {
        self.align == Align::Right
    }

    /// The text in exactly this width, if it may be cut. (`format!` pads by the number of letters, but a
    /// letter may be two columns wide, or none.)
    pub fn cell(self, text: &str) -> String {
        let text = match self.elision {
            Elision::BetweenWords => cut_at_word(text, self.width),
            Elision::AtAnyLetter => cut(text, self.width),
            Elision::Never => text.to_owned(),
        };
        let blank = " ".repeat(self.width.saturating_sub(text.width()));
        match self.align {
            Align::Left => text + &blank,
            Align::Right => blank + &text,
        }
    }
}

/// The cells side by side, with a blank between them.
pub fn line<T: AsRef<str>>(columns: &[Column], cells: &[T]) -> String {
    let cells: Vec<_> = columns.iter().zip(cells).map(|(column, cell)| column.cell(cell.as_ref())).collect();
    cells.join(" ")
}

/// The total width of these columns.
pub fn needed(columns: &[Column]) -> usize {
    (columns.iter().map(|column| column.width + 1).sum::<usize>()).saturating_sub(1)
}

/// The number of columns that fit. The last ones are left out first, and the first one always stays.
pub fn fitting(columns: &[Column], width: usize) -> usize {
    (1..=columns.len()).rev().find(|&kept| needed(&columns[..kept]) <= width).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn widths_are_counted_as_a_terminal_counts_them() {
        for (text, left, right) in [
            ("node", "node  ", "  node"),
            ("日本", "日本  ", "  日本"),
            ("日本語機", "日本… ", " 日本…"),
            // A letter with a combining accent; two characters that form one glyph.
            ("cafe\u{301}", "cafe\u{301}  ", "  cafe\u{301}"),
            ("👩\u{200d}💻", "👩\u{200d}💻    ", "    👩\u{200d}💻"),
        ] {
            let cells = (Column::name(6).cell(text), Column::figure(6).cell(text));
            assert_eq!(cells, (left.to_owned(), right.to_owned()));
            assert_eq!((left.width(), right.width()), (6, 6), "{text}");
        }
    }

    #[test]
    fn words_names_and_figures_are_cut_each_in_its_way() {
        let text = "AllReduce bf16 9ca792c9";
        assert_eq!(Column::words(20).cell(text), "AllReduce bf16 …    ");
        assert_eq!(Column::name(20).cell(text), "AllReduce bf16 9ca7…");
        assert_eq!(Column::figure(4).cell("71,760"), "71,…");
        assert_eq!(Column::figure(4).whole().cell("71,760"), "71,760");
        assert_eq!(line(&[Column::name(4), Column::figure(3)], &["a", "1", "more"]), "a      1");
    }

    #[test]
    fn the_last_columns_give_way() {
        let columns = [Column::name(4), Column::figure(3), Column::figure(5)];
        assert_eq!(needed(&columns), 14);
        assert_eq!([14, 13, 8, 7, 0].map(|width| fitting(&columns, width)), [3, 2, 2, 1, 1]);
    }
}
