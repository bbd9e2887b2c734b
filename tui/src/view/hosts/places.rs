//! The ranks by host and local rank, so that a fault that several hosts have at the same place is visible.
//! xpu-top has no data about rails and switches.

use ratatui::{buffer::Buffer, layout::Rect};
use xpu_wire::id::Rank;

use super::super::{
    list::{Cell, Column, List},
    panel::{self, Title},
    ranks::state,
};
use crate::{
    app::{App, Host},
    palette::Role,
    width::Breakpoint,
};

/// Smallest width: 200 columns, less one on each side.
const ROOMY: u16 = 198;

/// Smallest number of lines that are worth a panel.
const LEAST: u16 = 6;

/// Columns of a rank and its state, and of the longest name of a host.
const CELL: usize = 16;
const LONGEST: usize = 20;

/// The places on a host; ranks beyond them are not shown.
const HEADS: [&str; 8] =
    ["local 0", "local 1", "local 2", "local 3", "local 4", "local 5", "local 6", "local 7"];

/// Draws the panel if there is room for it.
pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let hosts: Vec<_> = app.hosts.all().iter().filter(|host| !host.ranks.is_empty()).collect();
    if area.width < ROOMY || area.height < LEAST || hosts.is_empty() {
        return;
    }
    let title = Title {
        name: "Ranks by host",
        about: "columns are local ranks".to_owned(),
        right: "rails and switches are not known".to_owned(),
    };
    let height = usize::from(area.height).min(hosts.len() + 3) as u16;
    let inner = panel::draw(app.palette, breakpoint, title, Rect { height, ..area }, buffer);
    let names = hosts.iter().map(|host| host.name.as_str().len()).max().unwrap_or(0);
    let name = Column::text("host", names.clamp(8, LONGEST), 0);
    let columns: Vec<_> = [name].into_iter().chain(HEADS.map(|head| Column::text(head, CELL, 0))).collect();
    let list = List { columns: &columns, sorted: None, selected: None, lines: hosts.len() };
    list.draw(app.palette, inner, buffer, |line| cells(app, hosts[line]));
}

fn cells(app: &App, host: &Host) -> Vec<Cell> {
    let mut places: [Option<Rank>; HEADS.len()] = [None; HEADS.len()];
    for rank in host.ranks.iter() {
        let local = app.job().and_then(|job| job.rank(rank)?.info()?.local_rank);
        if let Some(place) = local.and_then(|local| places.get_mut(local.0 as usize)) {
            *place = Some(rank);
        }
    }
    let name = (host.name.to_string(), Role::Strong);
    [name].into_iter().chain(places.map(|place| cell(app, place))).collect()
}

/// `37 ▲ slow`
fn cell(app: &App, place: Option<Rank>) -> Cell {
    let row = place.and_then(|rank| app.job_view.rows().get(app.job_view.row_of(rank)?));
    row.map_or_else(
        || (String::new(), Role::Muted),
        |row| {
            let (text, role) = state(row);
            (format!("{:>5} {text}", row.status.rank.to_string()), role)
        },
    )
}
