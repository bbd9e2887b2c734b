//! One rank alone: which matrix products and which collectives it spends its time in.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Borders, Widget as _},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_shared::status::{CollectiveStatus, DeviceStatus, GemmStatus, RankStatus, StepSign};

use crate::{
    app::App,
    figure,
    glyph::UNKNOWN,
    palette::{Palette, Role},
    widget::wrap::cut,
    width::Room,
};

/// A column: its head, its width, and whether it stands right.
type Place = (&'static str, usize, bool);

const GEMMS: [Place; 5] = [
    ("MxNxK, type", 24, false),
    ("count", 9, true),
    ("TFLOPS", 7, true),
    ("p50 µs", 8, true),
    ("p99 µs", 8, true),
];

/// Together as wide as half a terminal of 132 columns has room for.
const COLLECTIVES: [Place; 6] = [
    ("operation", 27, false),
    ("size", 7, true),
    ("count", 6, true),
    ("GB/s", 4, true),
    ("p50 µs", 6, true),
    ("p99", 5, true),
];

pub(super) fn draw(app: &App, room: Room, area: Rect, buffer: &mut Buffer) {
    let Some(rank) = &app.survey.inspected else { return };
    let [top, area] = Layout::vertical([Constraint::Length(1), Constraint::Fill(1)]).areas(area);
    let known = cut(&about(rank).join("  "), usize::from(top.width.saturating_sub(1)));
    buffer.set_line(top.x + 1, top.y, &Line::styled(known, app.palette.of(Role::Muted)), top.width);
    let parts = [Constraint::Fill(1), Constraint::Fill(1)];
    let ([left, right], borders) = if room == Room::Wide {
        (Layout::horizontal(parts).spacing(2).areas(area), Borders::ALL)
    } else {
        (Layout::vertical(parts).areas(area), Borders::TOP)
    };
    let gemms: Vec<_> = rank.gemms.iter().map(gemm).collect();
    let collectives: Vec<_> = rank.collectives.iter().map(collective).collect();
    let who = format!("rank {} ({}, pid {})", rank.rank, rank.host, rank.pid);
    table(app.palette, ("GEMMs", &who), &GEMMS, &gemms, (left, borders), buffer);
    table(app.palette, ("Collectives", waits(rank)), &COLLECTIVES, &collectives, (right, borders), buffer);
}

/// What is known of the rank beside its products and collectives, and how closely it is watched.
fn about(rank: &RankStatus) -> Vec<String> {
    let mut known = Vec::new();
    if rank.step_source == Some(StepSign::Detected) {
        known.push("steps detected".to_owned());
    }
    known.extend(rank.mfu.map(|share| format!("MFU {} %", figure::tenths(share * 100.0))));
    known.extend(rank.tokens_per_s.map(|rate| format!("{} tokens/s", figure::three(rate))));
    known.extend(rank.samples_per_s.map(|rate| format!("{} samples/s", figure::three(rate))));
    known.extend(rank.loss.map(|loss| format!("loss {loss:.4}")));
    known.extend(rank.memory_held_bytes.map(|bytes| format!("memory {}", figure::bytes(bytes))));
    known.extend(rank.device.as_ref().map(health));
    known.extend(rank.blocked_pct.map(|share| format!("blocked {} %", figure::tenths(share))));
    let one_in = rank.gemm_timed_one_in.zip(rank.collective_timed_one_in);
    known.extend(one_in.map(|(gemm, collective)| {
        format!("timed: 1 in {} GEMMs, 1 in {} collectives", figure::count(gemm), figure::count(collective))
    }));
    known.extend(rank.budget_pct.map(|budget| format!("budget {budget:.2} %")));
    if let Some(activity) = &rank.activity {
        let launches =
            |count: u64, what: &str| (count > 0).then(|| format!("{} {what}", figure::count(count)));
        known.extend(launches(activity.graphs.iter().map(|graph| graph.launches).sum(), "graph launches"));
        known.extend(launches(activity.kernels.iter().map(|kernel| kernel.launches).sum(), "named kernels"));
    }
    known
}

/// Its GPU, as the driver tells.
fn health(device: &DeviceStatus) -> String {
    let of = |now: Option<String>, most: Option<String>, unit: &str| {
        let now = now?;
        Some(most.map_or_else(|| format!("{now} {unit}"), |most| format!("{now} of {most} {unit}")))
    };
    let clock = |mhz: Option<u32>| mhz.map(|mhz| figure::count(mhz.into()));
    let watts = |power: Option<f64>| power.map(|power| format!("{power:.0}"));
    let throttle = device.throttle.as_ref().filter(|reasons| !reasons.is_empty());
    let known = [
        device.gpu_pct.map(|share| format!("{share} %")),
        of(clock(device.sm_mhz), clock(device.sm_max_mhz), "MHz"),
        throttle.map(|reasons| reasons.join(", ")),
        of(watts(device.power_w), watts(device.power_limit_w), "W"),
        device.temperature_c.map(|degrees| format!("{degrees} °C")),
        device.memory_used_bytes.map(|used| format!("{} used", figure::bytes(used))),
        device.ecc_uncorrected.filter(|&errors| errors > 0).map(|errors| format!("{errors} ECC errors")),
        device.nvlink_errors.filter(|&errors| errors > 0).map(|errors| format!("{errors} NVLink errors")),
        device.last_xid.as_ref().map(|xid| format!("Xid {}", xid.code)),
        device.is_stale().then(|| format!("read {:.0} s ago", device.age_s)),
    ];
    format!("GPU {}", known.into_iter().flatten().collect::<Vec<_>>().join(", "))
}

/// A collective's time says nothing of the link alone.
fn waits(rank: &RankStatus) -> &'static str {
    if rank.collectives.is_empty() { "" } else { "GB/s of the transfer, µs with waiting" }
}

fn gemm(gemm: &GemmStatus) -> [String; 5] {
    let batch = if gemm.batch == 1 { String::new() } else { format!(" b{}", gemm.batch) };
    let shape = format!("{}x{}x{}{batch} {} {}", gemm.m, gemm.n, gemm.k, gemm.datatype, gemm.transposed);
    let tflops = gemm.tflops.map(|rate| rate.0);
    let tflops = tflops.map_or_else(|| UNKNOWN.to_owned(), figure::tenths);
    [shape, figure::count(gemm.count), tflops, known(gemm.us_p50), known(gemm.us_p99)]
}

fn collective(of: &CollectiveStatus) -> [String; 6] {
    let name = format!("{} {} {}", of.operation, of.datatype, of.communicator);
    let count = if of.count < 100_000 { figure::count(of.count) } else { figure::three(of.count as f64) };
    let rate = of.bus_gb_s.map(|rate| rate.0);
    [name, figure::bytes(of.bytes), count, known(rate), known(of.us_p50), known(of.us_p99)]
}

fn known(value: Option<f64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), figure::three)
}

/// As many rows as fit, most time first; the rest is counted.
fn table<const N: usize>(
    palette: Palette,
    (title, means): (&str, &str),
    places: &[Place; N],
    rows: &[[String; N]],
    (area, borders): (Rect, Borders),
    buffer: &mut Buffer,
) {
    let strong = palette.of(Role::Accent).patch(palette.of(Role::Strong));
    // A short list has a short frame.
    let area = Rect { height: area.height.min(rows.len().max(1) as u16 + 3), ..area };
    let mut block = Block::new()
        .borders(borders)
        .border_type(BorderType::Rounded)
        .border_style(palette.of(Role::Faint))
        .title_top(Line::from(vec![
            Span::styled(format!(" {title} "), strong),
            Span::styled(
                if means.is_empty() { String::new() } else { format!("{means} ") },
                palette.of(Role::Muted),
            ),
        ]));
    let inner = block.inner(area);
    let fit = usize::from(inner.height.saturating_sub(1));
    if rows.len() > fit {
        let text = format!(" {} of {} ", fit, rows.len());
        block = block.title_top(Line::styled(text, palette.of(Role::Muted)).right_aligned());
    }
    block.render(area, buffer);
    let inner = Rect { x: inner.x + 1, width: inner.width.saturating_sub(2), ..inner };
    if inner.height == 0 {
        return;
    }
    if rows.is_empty() {
        let text = cut("waiting for its next summary, one a second", usize::from(inner.width));
        buffer.set_line(inner.x, inner.y, &Line::styled(text, palette.of(Role::Muted)), inner.width);
        return;
    }
    let heads = places.map(|(head, ..)| head.to_owned());
    let lines = std::iter::once((&heads, Role::Muted)).chain(rows.iter().map(|row| (row, Role::Text)));
    for ((cells, role), y) in lines.zip(inner.y..inner.bottom()) {
        let text = line(places, cells, usize::from(inner.width));
        buffer.set_line(inner.x, y, &Line::styled(text, palette.of(role)), inner.width);
    }
}

/// The last columns give way where there is no room; the first takes what is left over.
fn line<const N: usize>(places: &[Place; N], cells: &[String; N], width: usize) -> String {
    let mut kept = places.len();
    let needed = |kept: usize| places[..kept].iter().map(|(_, width, _)| width + 1).sum::<usize>() - 1;
    while kept > 1 && needed(kept) > width {
        kept -= 1;
    }
    let padded = places[..kept].iter().zip(cells).map(|(&(_, width, right), cell)| {
        let cell = cut(cell, width);
        let air = " ".repeat(width - cell.width().min(width));
        if right { format!("{air}{cell}") } else { format!("{cell}{air}") }
    });
    padded.collect::<Vec<_>>().join(" ")
}
