//! `xpu-top`: the screen, and the commands around it.

pub mod arrival;
