//! `xpu-top`: the screen, and the commands around it.

pub mod action;
pub mod app;
pub mod arrival;
pub mod figure;
pub mod glyph;
pub mod keymap;
pub mod palette;
pub mod svg;
pub mod terminal;
pub mod update;
pub mod view;
pub mod watch;
pub mod widget;
pub mod width;
