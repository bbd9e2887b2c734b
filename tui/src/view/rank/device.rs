//! The rank's GPU, as the driver reports it.

use ratatui::text::{Line, Span};
use xpu_model::{
    figure,
    status::{DeviceStatus, GpuTime},
};
use xpu_wire::frame::Life;

use super::load;
use crate::{
    app::{App, Inspection},
    palette::{Palette, Role},
    view::panel::Title,
};

/// Columns of a line's label.
const NAME: usize = 12;

pub(super) fn title(rank: &Inspection) -> Title<'static> {
    let name = rank.status.activity.as_ref().map(|activity| activity.device.clone()).unwrap_or_default();
    Title { name: "GPU", about: name, right: String::new() }
}

/// One quantity: its name, its text, and whether it is a problem.
pub(super) struct Health {
    pub(super) name: &'static str,
    pub(super) text: String,
    pub(super) role: Role,
}

impl Health {
    fn line(&self, palette: Palette) -> Line<'static> {
        Line::from(vec![
            Span::styled(format!("{:NAME$}", self.name), palette.of(Role::Muted)),
            Span::styled(self.text.clone(), palette.of(self.role)),
        ])
    }
}

pub(super) fn lines(app: &App, rank: &Inspection) -> Vec<Line<'static>> {
    let load = rank.status.load.as_ref().map_or_else(Vec::new, load::of);
    let load = load.iter().map(|health| health.line(app.palette));
    let Some(device) = &rank.status.device else {
        let why = Line::styled(why_no_device(rank), app.palette.of(Role::Muted));
        let next = Line::styled("is libnvidia-ml.so.1 on its host?", app.palette.of(Role::Muted));
        let shown = [why, next].into_iter().take(if rank.is_new { 1 } else { 2 });
        return shown.chain(load).collect();
    };
    let health = health(device, rank.status.gpu_time, unread(app, rank));
    health.iter().map(|health| health.line(app.palette)).chain(load).collect()
}

/// Why the GPU's data is unknown.
fn why_no_device(rank: &Inspection) -> &'static str {
    if rank.is_new { "no reports yet" } else { "the driver does not report it" }
}

/// The quantities on one line, problems first.
pub(super) fn brief(app: &App, rank: &Inspection) -> Line<'static> {
    let palette = app.palette;
    let Some(device) = &rank.status.device else {
        return Line::styled(format!("GPU: {}", why_no_device(rank)), palette.of(Role::Muted));
    };
    let mut all = health(device, None, unread(app, rank));
    all.sort_by_key(|health| health.role != Role::Warning);
    let mut line = Line::from(Span::styled("GPU ", palette.of(Role::Muted)));
    for (at, health) in all.iter().enumerate() {
        let gap = if at > 0 { "  " } else { "" };
        let air = match health.name {
            name @ ("held by" | "Xid" | "ECC" | "NVLink" | "read") => {
                line.push_span(Span::styled(format!("{gap}{name}"), palette.of(Role::Muted)));
                " "
            }
            _ => gap,
        };
        line.push_span(Span::styled(format!("{air}{}", health.text), palette.of(health.role)));
    }
    line
}

/// Why a reading is old.
fn unread(app: &App, rank: &Inspection) -> &'static str {
    let row = &app.job_view.rows()[rank.row];
    match row.life {
        Life::Ended | Life::Died => "the rank has ended",
        Life::Alive if !row.is_heard() => "its host does not report",
        Life::Alive | Life::Silent => "its driver does not answer",
    }
}

/// `time`: the shares of its busy time.
fn health(device: &DeviceStatus, time: Option<GpuTime>, unread: &str) -> Vec<Health> {
    let of = |now: Option<String>, most: Option<String>, unit: &str| {
        let now = now?;
        Some(most.map_or_else(|| format!("{now} {unit}"), |most| format!("{now} of {most} {unit}")))
    };
    let clock = |mhz: Option<u32>| mhz.map(|mhz| figure::count(mhz.into()));
    let watts = |power: Option<f64>| power.map(|power| format!("{power:.0}"));
    let usual = if device.is_stale() { Role::Muted } else { Role::Text };
    let news = |is: bool| if is { Role::Warning } else { usual };
    let known = |name, text: Option<String>| text.map(|text| Health { name, text, role: usual });
    let held = device.throttle.as_ref().map(|reasons| Health {
        name: "held by",
        text: if reasons.is_empty() { "nothing".to_owned() } else { reasons.join(", ") },
        role: news(!reasons.is_empty()),
    });
    let memory = device.memory_used_bytes.map(|used| {
        let total = device.memory_total_bytes.map(|total| format!(" of {}", figure::bytes(total)));
        format!("{}{}", figure::bytes(used), total.unwrap_or_default())
    });
    let errors = device.ecc_uncorrected.map(|uncorrected| Health {
        name: "ECC",
        text: match device.ecc_corrected {
            Some(corrected) => {
                format!("{} uncorrected, {} corrected", figure::count(uncorrected), figure::count(corrected))
            }
            None => format!("{} uncorrected", figure::count(uncorrected)),
        },
        role: news(uncorrected > 0),
    });
    let links = device.nvlink_errors.map(|errors| Health {
        name: "NVLink",
        text: figure::counted(errors as usize, "error", "errors"),
        role: news(errors > 0),
    });
    let xid = device.xids.map(|count| {
        let last = device.last_xid.as_ref().map(|xid| {
            let means = xid.means.as_ref().map_or_else(String::new, |means| format!(", {means}"));
            let ago = std::time::Duration::from_secs_f64(xid.age_s.max(0.0));
            format!("{}{means}, {} ago", xid.code, figure::age(ago))
        });
        let text = last.unwrap_or_else(|| figure::count(count.into()));
        Health { name: "Xid", text: if count == 0 { "none".to_owned() } else { text }, role: news(count > 0) }
    });
    let age = device.is_stale().then(|| Health {
        name: "read",
        text: format!("{:.0} s ago: {unread}", device.age_s),
        role: Role::Warning,
    });
    let all = [
        age,
        known("SM clock", of(clock(device.sm_mhz), clock(device.sm_max_mhz), "MHz")),
        held,
        known("power", of(watts(device.power_w), watts(device.power_limit_w), "W")),
        known("temperature", device.temperature_c.map(|degrees| format!("{degrees} °C"))),
        known(
            "busy",
            device.gpu_pct.map(|share| format!("{share} %{}", time.map_or_else(String::new, parts))),
        ),
        known("memory", memory),
        known("mem clock", of(clock(device.memory_mhz), clock(device.memory_max_mhz), "MHz")),
        errors,
        links,
        xid,
    ];
    all.into_iter().flatten().collect()
}

/// The parts of the last half minute.
fn parts(time: GpuTime) -> String {
    let GpuTime { gemms_pct, graphs_pct, communication_pct, other_kernels_pct, .. } = time;
    let graphs = if graphs_pct < 0.5 { String::new() } else { format!("graphs {graphs_pct:.0}, ") };
    format!(" (GEMMs {gemms_pct:.0}, {graphs}NCCL {communication_pct:.0}, other {other_kernels_pct:.0})")
}
