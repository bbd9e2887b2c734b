//! GEMMs by shape: the speed of each shape, and the ranks on which it is slow.

mod detail;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_analysis::capture::transposed;
use xpu_model::figure;
use xpu_wire::gemm::GemmShape;

use super::{
    header,
    list::{Cell, Column, List, known},
    panel::{self, Title},
};
use crate::{
    action::{Action, Choosing},
    app::{App, Gemm, GemmColumn},
    glyph,
    hits::{Hits, Target},
    palette::Role,
    width::Breakpoint,
};

/// Columns of the longest shape.
const LONGEST: usize = 34;

/// Lines of the list before the detail gets the space.
const LISTED: usize = 14;

/// An answer takes at most this long, because summaries come once a second.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// A recording has the first summary of each rank within this time from its start.
const FIRST_REPORTS: std::time::Duration = std::time::Duration::from_secs(2);

pub(crate) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer, hits: &mut Hits) {
    let below = header::draw_brief(app, breakpoint, area, buffer);
    let frame = if breakpoint == Breakpoint::Wide { 3 } else { 2 };
    let most = LISTED.min(usize::from(below.height) * 9 / 20);
    let listed = app.gemms.shapes().len().clamp(1, most.max(1)) as u16;
    let nothing = nothing(app);
    let [list, rest] = match nothing {
        Some(_) => [below, Rect::ZERO],
        None => Layout::vertical([Constraint::Length(listed + frame), Constraint::Fill(1)]).areas(below),
    };
    let inner = panel::draw(app.palette, breakpoint, title(app, breakpoint), list, buffer);
    if let Some((role, text)) = nothing {
        panel::paragraph(app.palette, role, &text, inner, buffer);
        return;
    }
    let shapes = app.gemms.shapes();
    let columns = columns(app);
    let sorted = GemmColumn::place(app.gemms.order.by);
    let list = List {
        columns: &columns,
        sorted: Some((sorted, app.gemms.order.is_rising())),
        selected: Some(app.gemms.at()),
        lines: shapes.len(),
    };
    let shown = list.draw(app.palette, inner, buffer, |line| cells(&shapes[line]));
    hits.put(Rect { height: 1, ..inner }, Target::Do(Action::Pick(Choosing::Sort)));
    hits.lines(inner, shown);
    if let Some(gemm) = app.gemms.selected() {
        detail::draw(app, breakpoint, gemm, rest, buffer);
    }
}

fn title(app: &App, breakpoint: Breakpoint) -> Title<'static> {
    let shapes = app.gemms.shapes().len();
    let about = match breakpoint {
        Breakpoint::Wide => "rates since this page was opened, counts and shares since the ranks started",
        Breakpoint::Medium => "rates since opening",
        _ => "",
    };
    let ranks = coverage(app);
    let right = if shapes == 0 {
        ranks
    } else {
        format!("{} of {ranks}", figure::counted(shapes, "shape", "shapes"))
    };
    Title { name: "GEMM by shape", about: if shapes == 0 { String::new() } else { about.to_owned() }, right }
}

/// `64 ranks`, `32 of 10,000 ranks`: the ranks that the page covers.
fn coverage(app: &App) -> String {
    let (heard, of) = (app.gemms.heard, app.job().map_or(0, |job| job.ranks().len()));
    if heard == of {
        figure::counted(of, "rank", "ranks")
    } else {
        format!("{} of {}", figure::count(heard as u64), figure::counted(of, "rank", "ranks"))
    }
}

/// Why the list is empty, and what to do.
fn nothing(app: &App) -> Option<(Role, String)> {
    let asked = figure::counted(app.watched.ranks.len(), "rank", "ranks");
    let waited = app.now().since(app.watched.since);
    let heard = app.gemms.heard;
    // The slowest of a few ranks need not be the slowest of all. A recording may never have the others.
    let is_early = app.playback().is_none() && heard < app.watched.ranks.len() && waited < PATIENCE;
    if heard > 0 && is_early {
        let text =
            format!("Shapes of {} of {asked} have arrived; the others follow.", figure::count(heard as u64));
        return Some((Role::Muted, text));
    }
    if !app.gemms.shapes().is_empty() {
        return None;
    }
    Some(if app.gemms.heard > 0 {
        let why =
            app.job_view.blind.first().map_or_else(String::new, |why| format!(" A hook reports: {why}."));
        let text = "No GEMMs yet. They appear with the first cuBLAS or cuBLASLt call. Kernels of the program itself (Triton, CUTLASS) and a statically linked cuBLAS are not seen; XPU_TOP_KERNELS=NAME,... times kernels by name.";
        (Role::Muted, format!("{text}{why}"))
    } else if app
        .playback()
        .is_some_and(|playback| playback.position.since(playback.span.first) < FIRST_REPORTS)
    {
        let text = "The recording begins here. Each rank reports its shapes once a second: they follow.";
        (Role::Muted, format!("{} {text}", glyph::WAITING))
    } else if app.playback().is_some() {
        let text = "This recording has no shapes at this time. Shapes are recorded for ranks that were looked at, for all ranks after r was pressed, and always by `xpu-top record`.";
        (Role::Muted, text.to_owned())
    } else if app.job_view.ranks_off > 0 && app.job_view.ranks_off >= app.job_view.heard {
        let text =
            "The hooks of this job are off: nothing is counted. `xpu-top ctl --hook on` switches them on.";
        (Role::Warning, format!("{} {text}", glyph::OFF))
    } else if waited > PATIENCE {
        let text = format!(
            "{} Shapes requested from {asked} {} ago; no answer. Check their hosts (9): a collector answers once a second, and a firewall must leave port 18890 open.",
            glyph::STALE,
            figure::age(waited)
        );
        (Role::Warning, text)
    } else {
        (
            Role::Muted,
            format!("{} Requesting shapes from {asked}; each answers once a second.", glyph::WAITING),
        )
    })
}

fn columns(app: &App) -> [Column; 8] {
    let shapes = || app.gemms.shapes().iter();
    let shape = shapes().map(|gemm| name(&gemm.shape).width()).max().unwrap_or(0).clamp(12, LONGEST);
    [
        Column::text("MxNxK, type", shape, 0),
        Column::figure("share", 6, 1),
        Column::figure("count", 11, 7),
        Column::figure("TFLOPS", 7, 0),
        Column::figure("% peak", 7, 4),
        Column::text("slowest rank", 14, 2),
        Column::figure("p50", 9, 3),
        Column::figure("p99", 9, 5),
    ]
}

impl GemmColumn {
    /// The column's place in the list.
    fn place(self) -> usize {
        match self {
            Self::Share => 1,
            Self::Count => 2,
            Self::Rate => 3,
            Self::Peak => 4,
            Self::Below => 5,
            Self::Time => 6,
        }
    }
}

fn cells(gemm: &Gemm) -> Vec<Cell> {
    let time = |quantile| gemm.durations.quantile(quantile).map(figure::short_time);
    vec![
        (name(&gemm.shape), Role::Strong),
        (figure::percent(gemm.share), Role::Text),
        (figure::count(gemm.count), Role::Text),
        known(gemm.rate().map(figure::three)),
        known(gemm.of_peak.map(|share| figure::tenths(share * 100.0))),
        slowest(gemm),
        known(time(0.5)),
        known(time(0.99)),
    ]
}

/// `▼ 37 -24 %`; the sign appears only if the difference is more than noise.
fn slowest(gemm: &Gemm) -> Cell {
    let (Some((rank, below)), Some(&(_, rate))) = (gemm.slowest(), gemm.rates.first()) else {
        return known(None);
    };
    let text = format!("{:>5} {:>4} %", rank.to_string(), format!("{:.0}", -(below * 100.0).round() + 0.0));
    if gemm.is_slow(rate) {
        (format!("{} {text}", glyph::LOW), Role::Warning)
    } else {
        (format!("  {text}"), Role::Muted)
    }
}

/// `8192x1024x8192 bf16 TN`
fn name(shape: &GemmShape) -> String {
    format!("{shape} {}", transposed(shape))
}
