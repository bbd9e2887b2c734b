//! Hosts: their connections, collectors, lost frames, the cost of watching, and the state of their GPUs.

mod detail;
mod places;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
};
use xpu_model::{figure, status::HostLoadStatus};

use super::{
    header,
    list::{Cell, Column, List, known},
    panel::{self, Title},
};
use crate::{
    action::{Action, Choosing},
    app::{App, Health, Host, HostColumn},
    glyph::{self, Sign},
    hits::{Hits, Target},
    palette::Role,
    width::Breakpoint,
};

/// Columns of the longest name.
const LONGEST: usize = 20;

/// Lines of the detail, by breakpoint; and the largest number that it needs.
const DETAIL: [u16; 3] = [7, 9, 12];
const TALLEST: u16 = 18;

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let below = header::draw_brief(app, breakpoint, area, buffer);
    let hosts = app.hosts.all();
    let lines =
        DETAIL[(breakpoint as usize).saturating_sub(Breakpoint::Narrow as usize).min(DETAIL.len() - 1)];
    let detail = if hosts.is_empty() { 0 } else { lines.min(below.height / 2) };
    let frame = if breakpoint == Breakpoint::Wide { 3 } else { 2 };
    let listed = (hosts.len().max(4) as u16).saturating_add(frame).min(below.height - detail);
    let [list, rest] = Layout::vertical([Constraint::Length(listed), Constraint::Fill(1)]).areas(below);
    let tall = rest.height.min(TALLEST);
    let free = Rect { y: rest.y + tall, height: rest.height - tall, ..rest };
    let rest = Rect { height: tall, ..rest };
    let inner = panel::draw(app.palette, breakpoint, title(app), list, buffer);
    if hosts.is_empty() {
        let text = if app.is_past() {
            "This recording has no frames up to this time."
        } else {
            "No hosts given: use `xpu-top --hosts 'gpu-[001-008]'` or `--job-hosts FILE`."
        };
        panel::paragraph(app.palette, Role::Muted, text, inner, buffer);
        return;
    }
    let columns = columns(app);
    let list = List {
        columns: &columns,
        sorted: Some((place(app.hosts.order.by), app.hosts.order.is_rising())),
        selected: Some(app.hosts.at()),
        lines: hosts.len(),
    };
    let shown = list.draw(app.palette, inner, buffer, |line| cells(&hosts[line]));
    hits.put(Rect { height: 1, ..inner }, Target::Do(Action::Pick(Choosing::Sort)));
    hits.lines(inner, shown);
    if let Some(host) = app.hosts.selected() {
        detail::draw(app, breakpoint, host, rest, buffer);
        places::draw(app, breakpoint, free, buffer);
    }
}

/// The number of hosts of each kind; bad ones first.
fn title(app: &App) -> Title<'static> {
    let hosts = app.hosts.all();
    let count = |health: Health| hosts.iter().filter(|host| host.health == health).count();
    let kinds = [
        (Health::Down, glyph::ALARM, "down"),
        (Health::Silent, glyph::STALE, "silent"),
        (Health::Trouble, glyph::WARNING, "with problems"),
        (Health::Connecting, glyph::WAITING, "connecting"),
    ];
    let counts = kinds.into_iter().map(|(health, sign, word)| (count(health), sign, word));
    let counts: Vec<_> = counts
        .filter(|(count, ..)| *count > 0)
        .map(|(count, sign, word)| format!("{sign} {} {word}", figure::count(count as u64)))
        .collect();
    let about = match (counts.is_empty(), hosts.is_empty()) {
        (true, false) => "all are up".to_owned(),
        _ => counts.join("   "),
    };
    Title { name: "Hosts", about, right: figure::counted(hosts.len(), "host", "hosts") }
}

fn columns(app: &App) -> [Column; 15] {
    let names = app.hosts.all().iter().map(|host| host.name.as_str().len()).max().unwrap_or(0);
    [
        Column::text("state", 12, 0),
        Column::text("host", names.clamp(8, LONGEST), 0),
        Column::figure("ranks", 7, 0),
        Column::figure("heard", 7, 2),
        Column::figure("lost", 6, 3),
        Column::figure("dropped", 8, 4),
        Column::figure("ovh %", 7, 5),
        Column::figure("°C", 4, 6),
        Column::figure("W", 6, 7),
        Column::figure("CPU %", 6, 10),
        Column::figure("net", 10, 11),
        Column::figure("disk", 10, 12),
        Column::text("version", 9, 8),
        Column::figure("timed 1 in", 10, 9),
        Column::text("what", 24, 1),
    ]
}

/// Columns whose figures are as old as the last report.
const OLD: std::ops::Range<usize> = 6..12;

fn place(column: HostColumn) -> usize {
    match column {
        HostColumn::Health => 0,
        HostColumn::Ranks => 2,
        HostColumn::Age => 3,
        HostColumn::Lost => 4,
        HostColumn::Overhead => 6,
        HostColumn::Heat => 7,
        HostColumn::Power => 8,
        HostColumn::Cpu => 9,
        HostColumn::Network => 10,
        HostColumn::Disk => 11,
    }
}

fn state(health: Health) -> Sign {
    match health {
        Health::Up => Sign { glyph: glyph::GOOD, word: "up", role: Role::Good },
        Health::Connecting => Sign { glyph: glyph::WAITING, word: "connecting", role: Role::Muted },
        Health::Trouble => Sign { glyph: glyph::WARNING, word: "up", role: Role::Warning },
        Health::Silent => Sign { glyph: glyph::STALE, word: "silent", role: Role::Warning },
        Health::Down => Sign { glyph: glyph::ALARM, word: "down", role: Role::Alarm },
    }
}

fn cells(host: &Host) -> Vec<Cell> {
    let Sign { glyph: sign, word, role } = state(host.health);
    let counted = |number: u64| {
        if number > 0 { (figure::count(number), Role::Warning) } else { ("0".to_owned(), Role::Muted) }
    };
    let all = host.ranks.len();
    let ranks = match (host.living == all, host.misses_ranks()) {
        (true, _) => (all.to_string(), Role::Text),
        (false, misses) => {
            (format!("{} of {all}", host.living), if misses { Role::Warning } else { Role::Muted })
        }
    };
    let silent = matches!(host.health, Health::Silent | Health::Down);
    let age = host.age.map(figure::age);
    let timed = host.gemm_one_in.zip(host.collective_one_in);
    let unknown = || known(None);
    let mut cells = vec![
        (format!("{sign} {word}"), role),
        (host.name.to_string(), Role::Strong),
        ranks,
        if silent { age.map_or_else(unknown, |age| (age, Role::Warning)) } else { known(age) },
        counted(host.lost_frames),
        counted(host.dropped_records),
        match host.overhead {
            Some(cost) if host.is_over_budget() => {
                (format!("{} {:.2}", glyph::HIGH, cost * 100.0), Role::Warning)
            }
            cost => known(cost.map(|cost| format!("{:.2}", cost * 100.0))),
        },
        known(host.gpus.hottest.map(|(degrees, _)| degrees.to_string())),
        known(host.gpus.power.map(|watts| figure::count(watts.round() as u64))),
        known(host.load.and_then(|load| load.cpu_pct).map(|share| format!("{share:.0}"))),
        known(host.load.and_then(HostLoadStatus::busiest_network).map(figure::bytes_per_second)),
        known(host.load.and_then(|load| load.disk.larger()).map(figure::bytes_per_second)),
        match &host.collector {
            Some(collector) if host.differs => {
                (format!("{} {}", glyph::WARNING, collector.version), Role::Warning)
            }
            collector => known(collector.as_ref().map(|collector| collector.version.clone())),
        },
        known(timed.map(|(gemm, collective)| format!("{gemm} / {collective}"))),
        detail::worst(host),
    ];
    if silent {
        // Its last report is not current.
        for (_, role) in &mut cells[OLD] {
            *role = Role::Muted;
        }
    }
    cells
}
