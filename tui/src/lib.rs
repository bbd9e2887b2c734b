//! `xpu-top`: the screen, and the commands around it.

pub mod action;
pub mod app;
pub mod args;
pub mod arrival;
pub mod command;
pub mod figure;
pub mod follow;
pub mod glyph;
pub mod hosts;
pub mod inquiry;
pub mod keymap;
pub mod live;
pub mod palette;
pub mod parts;
pub mod recorder;
pub mod replay;
pub mod report;
pub mod svg;
pub mod terminal;
mod theatre;
pub mod update;
pub mod view;
pub mod watch;
pub mod widget;
pub mod width;
