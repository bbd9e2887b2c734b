//! The commands of `xpu-top`.

pub mod args;
pub mod command;
mod gpu;
pub mod parts;
