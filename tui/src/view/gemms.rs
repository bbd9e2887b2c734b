//! Products by shape: how fast each is, and on which ranks it is slow.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    header,
    panel::{self, Title},
};
use crate::{app::App, width::Room};

pub(super) fn draw(app: &App, room: Room, area: Rect, buffer: &mut Buffer) {
    let below = header::draw_brief(app, room, area, buffer);
    panel::draw(app.palette, room, Title { name: "GEMM by shape", ..Title::default() }, below, buffer);
}
