//! The commands of `xpu-top`.

pub mod args;
pub mod command;
pub mod parts;
