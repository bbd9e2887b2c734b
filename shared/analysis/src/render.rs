//! A capture's report for people: as text and as a page.

mod html;
mod table;
mod tables;
mod text;

pub use html::html;
pub use table::Table;
pub use text::{preface, text};

use crate::capture::{Capture, Report};

/// Default number of rows of each table.
const ROWS: usize = 20;

fn milliseconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 / 1e6
}

/// A capture's report as a page.
pub fn page(capture: &Capture) -> String {
    html(capture, &Report::of(capture), ROWS)
}
