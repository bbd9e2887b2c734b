//! The screen of `xpu-top`.

pub mod action;
pub mod app;
pub mod config;
pub mod file_loader;
mod frame_source;
pub mod glyph;
pub mod hits;
pub mod key;
pub mod keymap;
pub mod letters;
pub mod look;
pub mod page;
pub mod palette;
pub mod playback;
pub mod prompt;
pub mod prompt_command;
pub mod recorder;
pub mod replay;
pub mod report;
pub mod svg;
pub mod terminal;
pub mod update;
pub mod view;
pub mod watch;
pub mod widget;
pub mod width;
