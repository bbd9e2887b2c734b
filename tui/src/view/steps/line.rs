//! Step times over time: the median rank as a column, the slowest as a line above it, and the changes.

use std::time::Duration;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
};
use unicode_width::UnicodeWidthStr as _;
use xpu_model::{
    change_point::ChangePoint,
    figure,
    job::median,
    status::{StepClock, StepSign},
};
use xpu_wire::unit::Moment;

use super::super::panel::{self, Title};
use crate::{
    app::{App, Point},
    glyph,
    palette::Role,
    widget::{bars, ends, scale::ALIKE, wrap::cut_at_word},
    width::Breakpoint,
};

/// Columns of the figures left of the plot.
const FIGURES: u16 = 10;

/// Smallest width at which both ends of the axis show their steps.
const ROOMY: u16 = 48;

/// A step this many times as long as the median is cut off and marked, so that the others stay
/// distinguishable.
const TALL: f64 = 2.5;

/// The number of changes listed below the plot, the newest ones.
const LISTED: usize = 3;

/// Number of lines of the changes.
pub(super) fn listed(app: &App, breakpoint: Breakpoint) -> usize {
    let most = if breakpoint == Breakpoint::Wide { LISTED } else { 1 };
    app.steps.changes.len().min(most)
}

/// The data of one column.
#[derive(Clone, Copy, Debug, Default)]
struct Bin {
    median: f64,
    worst: f64,
}

pub(super) fn draw(app: &App, breakpoint: Breakpoint, area: Rect, buffer: &mut Buffer) {
    let inner = panel::draw(app.palette, breakpoint, title(app, breakpoint), area, buffer);
    plot(app, listed(app, breakpoint), inner, buffer);
}

/// Draws the plot without its frame, with this many changes listed below it.
pub(super) fn plot(app: &App, changes: usize, inner: Rect, buffer: &mut Buffer) {
    let points: Vec<Point> = app.observed.step_times.points().copied().collect();
    let changes = changes.min(usize::from(inner.height / 3)) as u16;
    if inner.height < 3 || inner.width < FIGURES * 3 {
        return;
    }
    let plot = Rect {
        x: inner.x + FIGURES,
        width: inner.width - FIGURES,
        height: inner.height - 1 - changes,
        ..inner
    };
    if points.len() < 2 {
        let text = if app.job_view.is_stale() {
            "no reports from the job: the line continues when it reports"
        } else {
            "the line begins now: one point per second with a completed step"
        };
        panel::paragraph(app.palette, Role::Muted, text, plot, buffer);
        return;
    }
    let each = each(&points, app.now(), plot.width);
    let first = Moment(app.now().0.saturating_sub(each.as_nanos() as u64 * u64::from(plot.width)));
    let column = |at: Moment| (at.since(first).as_nanos() / each.as_nanos().max(1)) as usize;
    let bins = bins(&points, plot.width.into(), column);
    let seen = || bins.iter().flatten();
    let middle = median(seen().map(|bin| bin.median).collect()).unwrap_or(0.0);
    let lowest = seen().map(|bin| bin.median).fold(f64::INFINITY, f64::min);
    let highest = seen().map(|bin| bin.worst).fold(0.0, f64::max);
    let (from, to) = (lowest.min(middle) / 2.0, highest.min(middle * TALL).max(middle * 1.1));
    let share = |time: f64| ((time - from) / (to - from)).clamp(0.0, 1.0);
    let medians: Vec<_> = bins.iter().map(|bin| bin.map_or(0.0, |bin| share(bin.median))).collect();
    let (body, top) = (app.palette.of(Role::Faint), app.palette.of(Role::Accent));
    bars::draw(&medians, body, top, plot, buffer);
    for (bin, x) in bins.iter().zip(plot.x..) {
        if let Some(bin) = bin {
            whisker(app, *bin, share, bin.worst > to, x, plot, buffer);
        }
    }
    figures(app, from, to, inner, plot, buffer);
    let axis = Rect { y: plot.bottom(), height: 1, ..plot };
    let known = app.steps.changes.iter().filter(|(point, _)| point.at >= first);
    let placed = known.map(|(point, change)| (column(point.at), change));
    let marks: Vec<_> = placed.filter(|(at, _)| *at < usize::from(plot.width)).collect();
    ends_of_time(app, &points, first, axis, buffer, &|at| marks.iter().any(|(mark, _)| at.contains(mark)));
    for (at, change) in marks {
        let (sign, role) = sign(change);
        buffer.set_string(axis.x + at as u16, axis.y, sign, app.palette.of(role));
    }
    let newest = app.steps.changes.iter().rev().take(changes.into());
    for ((point, change), y) in newest.zip(axis.bottom()..) {
        let line = Line::from(change_line(app, point, change, usize::from(inner.width)));
        buffer.set_line(inner.x, y, &line, inner.width);
    }
}

pub(super) fn title(app: &App, breakpoint: Breakpoint) -> Title<'static> {
    let job_view = &app.job_view;
    let who = match job_view.step_sign {
        Some(StepSign::Marked) => "steps marked by the program".to_owned(),
        Some(StepSign::Optimizer) => {
            format!("steps of {}", job_view.optimizer.as_deref().unwrap_or("the optimizer"))
        }
        Some(StepSign::Detected | StepSign::DetectedLate) => "steps detected".to_owned(),
        None => String::new(),
    };
    let who = match job_view.step_clock {
        Some(StepClock::Gpu) => format!("{who}, timed on the GPU"),
        Some(StepClock::Host) => format!("{who}, timed on the host"),
        None => who,
    };
    let key = "columns: median rank; lines above: slowest";
    let about = match breakpoint {
        Breakpoint::Wide if who.is_empty() => key.to_owned(),
        Breakpoint::Wide => format!("{who}; {key}"),
        _ => who,
    };
    let last = app.observed.step_times.points().next_back();
    let overdue = app.job_view.since_step.filter(|_| app.job_view.stall().is_some());
    let right = match (overdue, last) {
        (Some(since), _) => format!("no step for {}", figure::age(since)),
        (None, Some(last)) => {
            let apart = if f64::from(last.worst) > f64::from(last.median) * (1.0 + ALIKE) {
                format!(", rank {} {}", last.rank, figure::tenths(last.worst.into()))
            } else {
                String::new()
            };
            format!("now {}{apart} ms", figure::tenths(last.median.into()))
        }
        (None, None) => String::new(),
    };
    Title {
        name: "Step time",
        about: if breakpoint == Breakpoint::Narrow { String::new() } else { about },
        right,
    }
}

/// The time of one column: everything fits, and no column is shorter than a second or the usual distance
/// between points.
fn each(points: &[Point], now: Moment, width: u16) -> Duration {
    let first = points.first().map_or(now, |point| point.at);
    let apart = points.windows(2).map(|pair| pair[1].at.since(pair[0].at).as_secs_f64());
    let usual = median(apart.collect()).unwrap_or(0.0);
    let span = now.since(first).as_secs_f64() + 1.0;
    Duration::from_secs_f64((span / f64::from(width.max(1))).max(usual).max(1.0))
}

/// Points of one column: the median of the medians, and the slowest of all.
fn bins(points: &[Point], width: usize, column: impl Fn(Moment) -> usize) -> Vec<Option<Bin>> {
    let mut medians: Vec<Vec<f64>> = vec![Vec::new(); width];
    let mut worst = vec![0.0_f64; width];
    for point in points {
        let at = column(point.at).min(width.saturating_sub(1));
        medians[at].push(point.median.into());
        worst[at] = worst[at].max(point.worst.into());
    }
    let known = medians.into_iter().zip(worst);
    let mut bins: Vec<_> =
        known.map(|(medians, worst)| Some(Bin { median: median(medians)?, worst })).collect();
    // Points come once a second, but not exactly on the second. So a single empty column between two filled
    // ones is no hang.
    for at in 1..width.saturating_sub(1) {
        if bins[at].is_none() && bins[at + 1].is_some() {
            bins[at] = bins[at - 1];
        }
    }
    bins
}

/// Draws the line from the column up to the slowest rank, if the difference is more than noise.
fn whisker(
    app: &App,
    bin: Bin,
    share: impl Fn(f64) -> f64,
    cut: bool,
    x: u16,
    plot: Rect,
    buffer: &mut Buffer,
) {
    if bin.worst <= bin.median * (1.0 + ALIKE) {
        return;
    }
    let row = |time: f64| (share(time) * f64::from(plot.height)).ceil() as u16;
    let style = app.palette.of(Role::Warning);
    for row in row(bin.median)..row(bin.worst) {
        buffer.set_string(x, plot.bottom() - 1 - row, glyph::WHISKER, style);
    }
    if cut {
        buffer.set_string(x, plot.y, glyph::HIGH, style);
    }
}

/// The values of the plot's upper and lower end.
fn figures(app: &App, from: f64, to: f64, inner: Rect, plot: Rect, buffer: &mut Buffer) {
    let mut put = |time: f64, y: u16| {
        let text = format!("{:>6} ms ", figure::three(time));
        buffer.set_stringn(inner.x, y, text, FIGURES.into(), app.palette.of(Role::Muted));
    };
    put(to, plot.y);
    put(from, plot.bottom() - 1);
    if plot.height > 6 {
        put(f64::midpoint(from, to), plot.y + plot.height / 2);
    }
}

/// Both ends of the axis, unless a mark takes their place.
fn ends_of_time(
    app: &App,
    points: &[Point],
    first: Moment,
    axis: Rect,
    buffer: &mut Buffer,
    is_marked: &dyn Fn(std::ops::Range<usize>) -> bool,
) {
    let muted = app.palette.of(Role::Muted);
    let (Some(oldest), Some(newest)) = (points.first(), points.last()) else { return };
    let ago = app.now().since(first.max(oldest.at));
    let last = figure::count(newest.step.0);
    let (left, right) = if axis.width < ROOMY {
        (format!("{} ago", figure::age(ago)), format!("step {last}"))
    } else {
        let first = figure::count(oldest.step.0);
        (format!("step {first}, {} ago", figure::age(ago)), format!("last step {last}"))
    };
    let width = usize::from(axis.width);
    let left = if is_marked(0..left.width() + 1) { String::new() } else { left };
    let right = if is_marked(width.saturating_sub(right.width() + 1)..width) { String::new() } else { right };
    ends::draw(&Line::styled(left, muted), &Line::styled(right, muted), axis, buffer);
}

fn sign(change: &ChangePoint) -> (&'static str, Role) {
    if change.by() > 0.0 { (glyph::WARNING, Role::Warning) } else { (glyph::LOW, Role::Good) }
}

/// `▲ 102.4 to 124.9 ms (+22.0 %) from step 17,960 on, 4 m ago, 02:14:07 UTC`
fn change_line(app: &App, point: &Point, change: &ChangePoint, width: usize) -> Vec<Span<'static>> {
    let (sign, role) = sign(change);
    let text = format!(
        "{} to {} ms ({:+.1} %) from step {} on, {} ago, {} UTC",
        figure::tenths(change.before),
        figure::tenths(change.after),
        change.by() * 100.0,
        figure::count(point.step.0),
        figure::age(app.now().since(point.at)),
        figure::time_of_day(point.at),
    );
    vec![
        Span::styled(format!("{sign} "), app.palette.of(role)),
        Span::styled(cut_at_word(&text, width.saturating_sub(2)), app.palette.of(role)),
    ]
}

#[cfg(test)]
mod tests {
    use xpu_wire::id::{Rank, Step};

    use super::*;

    #[test]
    fn one_column_without_a_point_is_filled_and_a_stall_is_not() {
        let point = |second: u64| Point {
            at: Moment(second),
            step: Step(second),
            median: second as f32,
            worst: second as f32,
            rank: Rank(0),
        };
        let points = [point(0), point(2), point(5), point(6)];
        let bins = bins(&points, 8, |at| at.0 as usize);
        let medians: Vec<_> = bins.iter().map(|bin| bin.map_or(-1.0, |bin| bin.median)).collect();
        assert_eq!(medians, [0.0, 0.0, 2.0, -1.0, -1.0, 5.0, 6.0, -1.0]);
    }
}
