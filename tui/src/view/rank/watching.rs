//! How closely the rank is watched, the cost of this, and the blind spots.

use ratatui::text::{Line, Span};
use xpu_model::{figure, status::RankStatus};

use crate::{
    app::{App, Inspection},
    glyph,
    palette::Role,
    view::panel::Title,
    widget::wrap::wrapped,
};

/// Columns of a line's label.
const NAME: usize = 10;
/// Largest number of lines of one label.
const LINES: usize = 3;

pub(super) fn title(rank: &Inspection) -> Title<'static> {
    let version = rank.info.as_ref().map(|info| format!("hook {}", info.version)).unwrap_or_default();
    Title { name: "Watching it", about: version, right: String::new() }
}

/// The memory that the rank has allocated on its GPU, the memory that NCCL took in addition, and growth.
fn memory(status: &RankStatus) -> Vec<(&'static str, String)> {
    let mut known = Vec::new();
    let activity = status.activity.as_ref();
    known.extend(status.memory_held_bytes.map(|held| {
        let peak = activity.map(|activity| format!("{} at most", figure::bytes(activity.memory.peak_bytes)));
        let nccl = status.memory_nccl_bytes.filter(|&bytes| bytes > 0);
        let nccl = nccl.map(|bytes| format!("NCCL took {}", figure::bytes(bytes)));
        let parts: Vec<_> = [Some(figure::bytes(held)), peak, nccl].into_iter().flatten().collect();
        ("allocated", parts.join(", "))
    }));
    known.extend(status.memory_growth.map(|growth| {
        let bytes = |number: f64| figure::bytes(number as u64);
        let (least, most) = (bytes(growth.least_bytes_per_step), bytes(growth.most_bytes_per_step));
        ("grows by", format!("{} a step ({least} to {most})", bytes(growth.bytes_per_step)))
    }));
    let grown = activity.and_then(|activity| activity.memory.sites.first());
    known.extend(grown.and_then(|site| {
        let (grown, place) = (site.grown_bytes?, site.place.as_ref()?);
        Some(("grew", format!("{} at {place} since its first steps", figure::bytes(grown))))
    }));
    known
}

pub(super) fn lines(app: &App, rank: &Inspection, width: usize) -> Vec<Line<'static>> {
    let status = &rank.status;
    let mut known: Vec<(&str, String, Role)> = Vec::new();
    let one_in = |rate: Option<u64>, what: &str| match rate {
        Some(rate) => format!("1 in {} {what}", figure::count(rate)),
        None => format!("no {what}"),
    };
    let timed =
        [one_in(status.gemm_timed_one_in, "GEMMs"), one_in(status.collective_timed_one_in, "collectives")];
    known.push(("timed", timed.join(", "), Role::Text));
    known.extend(status.nccl_calls.map(|calls| ("NCCL", calls.to_string(), Role::Text)));
    let activity = status.activity.as_ref();
    let cost = [
        status.overhead_pct.map(|share| format!("{share:.2} % of its time")),
        status.budget_pct.map(|budget| format!("{budget:.2} % allowed")),
    ];
    known.push(("costs", cost.into_iter().flatten().collect::<Vec<_>>().join(", "), Role::Text));
    let hook = [
        activity.filter(|a| a.event_us > 0.0).map(|a| format!("{:.1} µs a timed call", a.event_us)),
        activity.filter(|a| a.hook_bytes > 0).map(|a| figure::bytes(a.hook_bytes)),
    ];
    let hook: Vec<_> = hook.into_iter().flatten().collect();
    known.extend((!hook.is_empty()).then(|| ("", hook.join(", "), Role::Text)));
    let waits = activity
        .and_then(|activity| activity.blocked.first())
        .map(|worst| format!(", {} {:.1} ms at most", worst.call.replace('_', " "), worst.longest_ms));
    known.extend(status.blocked_pct.map(|share| {
        ("waits", format!("{} %{}", figure::tenths(share), waits.unwrap_or_default()), Role::Text)
    }));
    known.extend(memory(status).into_iter().map(|(name, text)| (name, text, Role::Text)));
    if let Some(activity) = activity {
        let graphs: u64 = activity.graphs.iter().map(|graph| graph.launches).sum();
        if graphs > 0 {
            known.push(("graphs", format!("{} launches", figure::count(graphs)), Role::Text));
        }
        known.extend(activity.kernels.iter().take(2).map(|kernel| {
            let p50 = kernel.us_p50.map_or_else(String::new, |us| format!(", {} µs", figure::three(us)));
            ("kernel", format!("{} ×{}{p50}", kernel.pattern, figure::count(kernel.launches)), Role::Text)
        }));
    }
    if rank.blind.is_empty() {
        known.push(("blind to", "none known".to_owned(), Role::Muted));
    }
    known.extend(
        rank.blind.iter().map(|text| ("blind to", format!("{} {text}", glyph::WARNING), Role::Warning)),
    );
    let lines = known.into_iter().flat_map(|(name, text, role)| {
        let texts = wrapped(&text, width.saturating_sub(NAME), LINES);
        texts.into_iter().enumerate().map(move |(at, text)| {
            Line::from(vec![
                Span::styled(
                    format!("{:NAME$}", if at == 0 { name } else { "" }),
                    app.palette.of(Role::Muted),
                ),
                Span::styled(text, app.palette.of(role)),
            ])
        })
    });
    lines.collect()
}
