//! The table of every command and report, as text and as HTML. Figures are right-aligned.

use std::fmt::Write as _;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};
use xpu_wire::text::is_steering;

use super::html::escaped;

/// Characters of a line. Where only the first column is text, it is cut.
const WIDEST: usize = 100;

#[derive(Debug)]
pub struct Table {
    title: String,
    head: Vec<&'static str>,
    /// Heads of the columns of text; if empty, the first column alone.
    text: &'static [&'static str],
    rows: Vec<Vec<String>>,
    /// Number of rows that are not shown.
    more: usize,
}

impl Table {
    /// The first few of all rows.
    pub fn new<T>(
        title: impl Into<String>,
        head: &[&'static str],
        all: &[T],
        top: usize,
        row: impl Fn(&T) -> Vec<String>,
    ) -> Self {
        let rows =
            all.iter().take(top).map(|one| row(one).iter().map(|cell| plain(cell)).collect()).collect();
        Self {
            title: title.into(),
            head: head.to_vec(),
            text: &[],
            rows,
            more: all.len().saturating_sub(top),
        }
    }

    /// Left-aligns the columns with these heads, and cuts none.
    pub fn text(self, heads: &'static [&'static str]) -> Self {
        Self { text: heads, ..self }
    }

    pub fn write_html(&self, out: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        // Writing to a String cannot fail.
        let _ = write!(out, "<h2>{}</h2>\n<div class=\"wide\"><table><thead><tr>", escaped(&self.title));
        for head in &self.head {
            let _ = write!(out, "<th>{}</th>", escaped(head));
        }
        out.push_str("</tr></thead><tbody>\n");
        for row in &self.rows {
            out.push_str("<tr>");
            for cell in row {
                let _ = write!(out, "<td>{}</td>", escaped(cell));
            }
            out.push_str("</tr>\n");
        }
        out.push_str("</tbody></table></div>\n");
        if self.more > 0 {
            let _ = writeln!(out, "<p>and {} more</p>", self.more);
        }
    }

    pub fn write(&self, out: &mut String) {
        if self.rows.is_empty() {
            return;
        }
        let columns = self.head.len();
        let mut widths: Vec<_> = self.head.iter().map(|head| head.width()).collect();
        for row in &self.rows {
            for (wide, cell) in widths.iter_mut().zip(row) {
                *wide = (*wide).max(cell.width());
            }
        }
        let others: usize = widths.iter().skip(1).map(|wide| wide + 2).sum();
        if let Some(first) = widths.first_mut().filter(|_| self.text.is_empty()) {
            *first = (*first).min(WIDEST.saturating_sub(others)).max(8);
        }
        // Writing to a String cannot fail.
        if !self.title.is_empty() {
            let _ = writeln!(out, "\n{}", self.title);
        }
        let head: Vec<_> = self.head.iter().map(|&head| head.to_owned()).collect();
        for row in std::iter::once(&head).chain(&self.rows) {
            let mut line = String::new();
            for (place, cell) in row.iter().take(columns).enumerate() {
                let wide = widths[place];
                let cell = cut(cell, wide);
                let space = " ".repeat(wide.saturating_sub(cell.width()));
                let gap = if place == 0 { "" } else { "  " };
                let _ = if self.is_text(place) {
                    write!(line, "{gap}{cell}{space}")
                } else {
                    write!(line, "{gap}{space}{cell}")
                };
            }
            let _ = writeln!(out, "{}", line.trim_end());
        }
        if self.more > 0 {
            let _ = writeln!(out, "and {} more; --top {} shows them", self.more, self.rows.len() + self.more);
        }
    }

    fn is_text(&self, place: usize) -> bool {
        if self.text.is_empty() { place == 0 } else { self.text.contains(&self.head[place]) }
    }
}

/// Names are untrusted: control characters are not shown.
fn plain(text: &str) -> String {
    text.chars().map(|letter| if is_steering(letter) { '\u{fffd}' } else { letter }).collect()
}

fn cut(text: &str, wide: usize) -> String {
    if text.width() <= wide {
        return text.to_owned();
    }
    let mut space = wide.saturating_sub(1);
    let fits = text.chars().take_while(|letter| {
        let needs = letter.width().unwrap_or(0);
        let fits = needs <= space;
        space = space.saturating_sub(needs);
        fits
    });
    fits.chain(['…']).collect()
}
