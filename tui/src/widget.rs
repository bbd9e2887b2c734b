//! Parts of a screen that do not depend on jobs.
#![forbid(unsafe_code)]

pub mod bars;
pub mod cell;
pub mod ends;
pub mod grid;
pub mod heatmap;
pub mod row;
pub mod scale;
pub mod sparkline;
pub mod timemap;
pub mod wrap;
