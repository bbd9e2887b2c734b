//! How long steps take over time, where that changed, and what they are made of.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    header,
    panel::{self, Title},
};
use crate::{app::App, width::Room};

pub(super) fn draw(app: &App, room: Room, area: Rect, buffer: &mut Buffer) {
    let below = header::draw_brief(app, room, area, buffer);
    panel::draw(app.palette, room, Title { name: "Steps", ..Title::default() }, below, buffer);
}
