//! Hosts: their collectors and links, versions, drops and cost.

use ratatui::{buffer::Buffer, layout::Rect};

use super::{
    header,
    panel::{self, Title},
};
use crate::{app::App, width::Room};

pub(super) fn draw(app: &App, room: Room, area: Rect, buffer: &mut Buffer) {
    let below = header::draw_brief(app, room, area, buffer);
    panel::draw(app.palette, room, Title { name: "Hosts", ..Title::default() }, below, buffer);
}
