//! One host: all known data, and its GPUs one by one.

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    text::{Line, Span},
};
use xpu_client::arrival::Link;
use xpu_model::{figure, status::TrafficStatus};
use xpu_wire::{endpoint::BasePort, id::Rank};

use super::super::{
    headline,
    list::{Cell, Column, List, known},
    panel::{self, Title},
    rank::load,
    ranks::state,
};
use crate::{
    app::{App, Health, Host},
    glyph,
    palette::Role,
    widget::wrap::wrapped,
    width::Breakpoint,
};

/// Columns of the GPUs, which are next to the host's data: without their load, and with it.
const BESIDE: u16 = 62;
const BESIDE_WITH_LOAD: u16 = 102;

/// Columns of the host's data, before the GPUs' load gets any.
const KNOWN: u16 = 69;

/// Columns of a line's label.
const LABEL: usize = 11;

/// Largest number of lines of one label: the first of these with which all labels fit, otherwise the last.
const MOST: [usize; 3] = [4, 3, 2];

/// Lines that the state of the link may always take: it names the reason why a host is down.
const LINK: usize = 3;

/// Runs of ranks in a line.
const RUNS: usize = 4;

pub(super) fn draw(app: &App, breakpoint: Breakpoint, host: &Host, area: Rect, buffer: &mut Buffer) {
    let (known, ranks) = if breakpoint == Breakpoint::Wide && !host.ranks.is_empty() {
        let beside = area.width.saturating_sub(KNOWN + 1).clamp(BESIDE, BESIDE_WITH_LOAD);
        let [known, ranks] =
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(beside)]).spacing(1).areas(area);
        (known, ranks)
    } else {
        (area, Rect::ZERO)
    };
    let name = host.name.to_string();
    let inner =
        panel::draw(app.palette, breakpoint, Title { name: &name, ..Title::default() }, known, buffer);
    let (width, height) = (usize::from(inner.width), usize::from(inner.height));
    let known = MOST.map(|most| lines(app, host, width, most));
    let known = known.iter().find(|lines| lines.len() <= height).unwrap_or(&known[MOST.len() - 1]);
    headline::lines(known, inner, buffer);
    if !ranks.is_empty() {
        draw_ranks(app, breakpoint, host, ranks, buffer);
    }
}

/// Its worst state, for its line.
pub(super) fn worst(host: &Host) -> Cell {
    let ranks = |count: usize| figure::counted(count, "rank", "ranks");
    let ended = host.ranks.len() - host.living - host.died;
    let said = [
        host.why().map(|why| {
            host.endpoint
                .as_ref()
                .map_or_else(|| why.to_owned(), |endpoint| without_address(why, &endpoint.host))
        }),
        (host.health == Health::Silent).then(|| "collector is silent".to_owned()),
        (host.gpus.xids > 0).then(|| format!("{} Xid errors", host.gpus.xids)),
        host.gpus.held.first().map(|(rank, word)| match host.gpus.held.len() {
            1 => format!("rank {rank}: {word}"),
            held => format!("{}: {word}", ranks(held)),
        }),
        (host.died > 0).then(|| format!("{} exited", ranks(host.died))),
        (ended > 0 && host.living > 0).then(|| format!("{} ended", ranks(ended))),
        (host.off > 0).then(|| format!("{} not observed", ranks(host.off))),
        host.blind.first().cloned(),
        host.differs.then(|| "different version".to_owned()),
        (host.lost_frames > 0).then(|| format!("{} frames lost in transit", figure::count(host.lost_frames))),
        (host.dropped_records > 0)
            .then(|| format!("{} records dropped", figure::count(host.dropped_records))),
        (host.untimed > 0).then(|| format!("{} not timed", figure::count(host.untimed))),
    ];
    let role = if host.health == Health::Down { Role::Alarm } else { Role::Warning };
    match said.into_iter().flatten().next() {
        Some(text) => (text, role),
        None if host.ranks.is_empty() && host.others > 0 => {
            (format!("{} of other jobs", ranks(host.others)), Role::Muted)
        }
        None if host.ranks.is_empty() && host.health == Health::Up => {
            ("no rank of this job".to_owned(), Role::Muted)
        }
        None => (String::new(), Role::Muted),
    }
}

/// The reason without the address of the host, which another column names.
fn without_address(why: &str, address: &str) -> String {
    let words: Vec<_> = why.split(' ').collect();
    let names = |word: &&str| {
        let port = word.trim_end_matches(':').strip_prefix(address);
        port.is_some_and(|port| port.is_empty() || port.starts_with(':'))
    };
    let Some(at) = words.iter().position(names) else { return why.to_owned() };
    let (before, after) = (&words[..at], &words[at + 1..]);
    let before = match before {
        [before @ .., "on" | "to"] => before,
        before => before,
    };
    let colon = if words[at].ends_with(':') { ":" } else { "" };
    let text = format!("{}{colon} {}", before.join(" "), after.join(" "));
    text.trim_start().to_owned()
}

fn lines(app: &App, host: &Host, width: usize, most: usize) -> Vec<Line<'static>> {
    let glyph::Sign { glyph: sign, role, .. } = super::state(host.health);
    let mut lines = Vec::new();
    let mut put = |label: &str, role: Role, text: &str, most: usize| {
        for (at, text) in wrapped(text, width.saturating_sub(LABEL), most).into_iter().enumerate() {
            let label = if at == 0 { label } else { "" };
            lines.push(Line::from(vec![
                Span::styled(format!("{label:<LABEL$}"), app.palette.of(Role::Muted)),
                Span::styled(text, app.palette.of(role)),
            ]));
        }
    };
    put("link", role, &format!("{sign} {}", link(host)), most.max(LINK));
    put("collector", if host.differs { Role::Warning } else { Role::Text }, &collector(app, host), most);
    let lost = host.lost_frames + host.dropped_records + host.untimed;
    let losses = format!(
        "{} frames lost in transit, {} records dropped by hooks, {} operations not timed",
        figure::count(host.lost_frames),
        figure::count(host.dropped_records),
        figure::count(host.untimed)
    );
    put("losses", if lost > 0 { Role::Warning } else { Role::Text }, &losses, most);
    if let Some(cost) = host.overhead {
        let budget = host.budget.map_or_else(
            || ", no budget set".to_owned(),
            |budget| format!(" of a budget of {}", figure::fine_percent(budget)),
        );
        let timed =
            host.gemm_one_in.zip(host.collective_one_in).map_or_else(String::new, |(gemm, collective)| {
                format!(
                    "; times 1 in {} GEMMs, 1 in {} collectives",
                    figure::count(gemm),
                    figure::count(collective)
                )
            });
        let role = if host.is_over_budget() { Role::Warning } else { Role::Text };
        put("overhead", role, &format!("{} of wall time{budget}{timed}", figure::fine_percent(cost)), most);
    }
    if !host.ranks.is_empty() || host.others > 0 {
        let others = if host.others > 0 {
            format!("; {} of other jobs", figure::count(host.others as u64))
        } else {
            String::new()
        };
        let off = if host.off > 0 {
            format!("; {} not observed: xpu-top ctl --hook on", host.off)
        } else {
            String::new()
        };
        let text =
            format!("{}, {} alive{others}{off}", host.ranks.brief(RUNS), figure::count(host.living as u64));
        put(
            "ranks",
            if host.misses_ranks() || host.off > 0 { Role::Warning } else { Role::Text },
            &text,
            most,
        );
        put(
            "GPUs",
            if host.gpus.held.is_empty() && host.gpus.xids == 0 { Role::Text } else { Role::Warning },
            &gpus(host),
            most,
        );
    }
    if let Some(load) = host.load {
        let disk = load::traffic(load.disk, ["read", "written"]).map(|rates| format!("disk {rates}"));
        let network = load::network(load).map(|rates| format!("network {rates}"));
        let known = [load::cpu(load).map(|share| format!("CPU {share}")), network, disk];
        put("host", Role::Text, &known.into_iter().flatten().collect::<Vec<_>>().join("; "), most);
    }
    for text in &host.blind {
        put("blind to", Role::Warning, text, most);
    }
    lines
}

fn link(host: &Host) -> String {
    let heard = host
        .age
        .map_or_else(|| "not reported yet".to_owned(), |age| format!("heard {} ago", figure::age(age)));
    let way = host
        .endpoint
        .as_ref()
        .map_or_else(String::new, |endpoint| format!(" ({}:{})", endpoint.host, endpoint.base.control()));
    match &host.link {
        Some((Link::Up, since)) => format!("up for {}{way}, {heard}", figure::age(*since)),
        Some((Link::Connecting, since)) => format!("connecting for {}{way}, {heard}", figure::age(*since)),
        Some((Link::Down { why }, since)) => format!("down for {}, {heard}: {why}", figure::age(*since)),
        None => format!("in this recording, {heard}"),
    }
}

fn collector(app: &App, host: &Host) -> String {
    let Some(of) = &host.collector else { return "version unknown".to_owned() };
    let usual = app.hosts.version.as_deref().filter(|_| host.differs);
    let usual = usual.map_or_else(String::new, |usual| {
        format!(", most have {usual}: install the same version on all hosts")
    });
    let port =
        if of.base == BasePort::DEFAULT { String::new() } else { format!(", base port {}", of.base.0) };
    format!("{}{usual}, started {}{port}", of.version, figure::clock(of.started))
}

fn gpus(host: &Host) -> String {
    let gpus = &host.gpus;
    if gpus.read == 0 {
        return "NVML reports no GPUs: doctor on that host shows why".to_owned();
    }
    let hottest = gpus.hottest.map(|(degrees, rank)| format!("hottest {degrees} °C (rank {rank})"));
    let watts = |watts: f64| figure::count(watts.round() as u64);
    let power = gpus.power.map(|power| {
        gpus.limit.map_or_else(
            || format!("{} W", watts(power)),
            |limit| format!("{} of {} W", watts(power), watts(limit)),
        )
    });
    let held = gpus.held.first().map(|(rank, word)| match gpus.held.len() {
        1 => format!("rank {rank} held down: {word}"),
        held => format!("{held} held down: {word}"),
    });
    let xids = (gpus.xids > 0).then(|| format!("{} Xid errors", gpus.xids));
    let known = [Some(format!("{} reported", gpus.read)), hottest, power, held, xids];
    known.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn draw_ranks(app: &App, breakpoint: Breakpoint, host: &Host, area: Rect, buffer: &mut Buffer) {
    let ranks: Vec<Rank> = host.ranks.iter().collect();
    let title = Title { name: "Ranks there", ..Title::default() };
    let inner = panel::draw(app.palette, breakpoint, title, area, buffer);
    let columns = [
        Column::figure("rank", 6, 0),
        Column::text("state", 9, 0),
        Column::figure("ovh %", 6, 0),
        Column::figure("°C", 3, 0),
        Column::figure("W", 4, 0),
        Column::figure("MHz", 5, 0),
        Column::figure("SM %", 5, 1),
        Column::figure("DRAM %", 6, 2),
        Column::figure("PCIe", 10, 3),
        Column::figure("NVLink", 10, 4),
        Column::text("held by", 13, 0),
    ];
    let list = List { columns: &columns, sorted: None, selected: None, lines: ranks.len() };
    list.draw(app.palette, inner, buffer, |line| rank(app, ranks[line]));
}

fn rank(app: &App, rank: Rank) -> Vec<Cell> {
    let Some(row) = app.job_view.row_of(rank).and_then(|row| app.job_view.rows().get(row)) else {
        return vec![(rank.to_string(), Role::Muted)];
    };
    let status = &row.status;
    let device = status.device.as_ref().filter(|device| !device.is_stale());
    let held = device.and_then(|device| device.throttle.as_ref());
    let load = status.load.as_ref().and_then(|load| load.gpu.as_ref());
    let share = |share: Option<f64>| known(share.map(|share| format!("{share:.0}")));
    let rate = |traffic: Option<TrafficStatus>| {
        known(traffic.and_then(TrafficStatus::larger).map(figure::bytes_per_second))
    };
    vec![
        (rank.to_string(), Role::Strong),
        state(row),
        known(status.overhead_pct.map(|cost| format!("{cost:.2}"))),
        known(device.and_then(|device| device.temperature_c).map(|degrees| degrees.to_string())),
        known(device.and_then(|device| device.power_w).map(|watts| format!("{watts:.0}"))),
        known(device.and_then(|device| device.sm_mhz).map(|clock| figure::count(clock.into()))),
        share(load.and_then(|load| load.sm_pct)),
        share(load.and_then(|load| load.dram_pct)),
        rate(load.map(|load| load.pcie)),
        rate(load.map(|load| load.nvlink)),
        match held.map(|words| words.join(", ")) {
            Some(words) if words.is_empty() => ("nothing".to_owned(), Role::Muted),
            Some(words) => (words, Role::Warning),
            None => known(None),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_does_not_repeat_the_host() {
        for (why, said) in [
            (
                "no collector listens on gpu-1:18889: start the job there",
                "no collector listens: start the job there",
            ),
            (
                "gpu-1:18891 accepts the connection but does not answer",
                "accepts the connection but does not answer",
            ),
            (
                "cannot find host gpu-1 (unknown): check its spelling",
                "cannot find host (unknown): check its spelling",
            ),
            ("ssh to gpu-1 ended: Permission denied", "ssh ended: Permission denied"),
            ("no answer on port 18891 for 12 s", "no answer on port 18891 for 12 s"),
            ("no collector listens on gpu-12:18889: start", "no collector listens on gpu-12:18889: start"),
        ] {
            assert_eq!(without_address(why, "gpu-1"), said);
        }
    }
}
