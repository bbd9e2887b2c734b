//! A capture in the formats of other programs.

pub mod chrome;
pub mod counter;
pub mod folded;
pub mod perfetto;
pub mod profile;
pub mod python;
mod slice;
pub mod timeline;
pub mod words;
