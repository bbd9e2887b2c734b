//! Writes the folder's manifest: the rank, steps and clock of each trace, and the ranks without a trace, with
//! the reason.

use std::{
    io::Write as _,
    path::{Path, PathBuf},
};

use serde::Serialize;
use xpu_model::figure;
use xpu_wire::{
    frame::{KinetoOptions, KinetoOrder, KinetoWindow},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use super::{
    fetch::{self, Fetch, Fetched},
    plan::Plan,
    ranks::{One, Ranks},
};
use crate::new_file;

#[derive(Debug, Serialize)]
pub(super) struct Manifest {
    version: &'static str,
    job: JobName,
    /// The same as `trace_id` in the traces.
    trace_id: String,
    window: Window,
    options: KinetoOptions,
    /// Whether all traces contain the optimizer calls of the requested steps and of the further one. `null` for a
    /// period, and if the ranks began more than a step apart: then a rank runs ahead, or the ranks count
    /// differently.
    same_steps: Option<bool>,
    /// Time from the first rank's to the last rank's begin of the first step.
    apart_ms: Option<f64>,
    /// Duration of a step when the traces were requested.
    step_ms: Option<f64>,
    ranks: Vec<OneRank>,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Window {
    Steps {
        first_step: u64,
        last_step: u64,
        /// Steps that the traces hold after the last one. They can lack kernels.
        further_steps: u32,
        optimizer_calls_per_step: u32,
    },
    /// `duration_ms` is the longest that a rank traced, or the requested one if the traces do not name it.
    Time { start_unix_ns: u64, duration_ms: f64, asked_ms: f64 },
}

/// A trace whose period is shorter than the requested one by more than this share was ended early.
const SHORT: f64 = 0.98;

#[derive(Debug, Serialize)]
struct OneRank {
    rank: Rank,
    host: Option<HostName>,
    pid: Option<u32>,
    status: &'static str,
    why: Option<String>,
    file: Option<String>,
    bytes: u64,
    uncompressed_bytes: u64,
    optimizer_steps: u32,
    /// Time by the clock of the rank's host.
    first_step_unix_ns: Option<u64>,
    last_step_unix_ns: Option<u64>,
    /// Length of the period that its trace covers, if a period was requested.
    traced_ms: Option<f64>,
    /// Time by which that clock is ahead of the requester's, including the message's travel time.
    clock_offset_ns: Option<i64>,
    asks_every_s: Option<f64>,
}

impl Manifest {
    pub(super) fn path(folder: &Path) -> PathBuf {
        folder.join("manifest.json")
    }

    pub(super) fn of(job: &JobName, order: &KinetoOrder, plan: &Plan, ranks: &Ranks, fetch: &Fetch) -> Self {
        let all: Vec<_> = ranks.iter().map(|(rank, one)| one_rank(rank, one, ranks, fetch)).collect();
        let starts: Vec<_> = all.iter().filter_map(OneRank::start).collect();
        let apart = starts.iter().max().zip(starts.iter().min()).map(|(last, first)| last - first);
        Self {
            version: xpu_wire::VERSION,
            job: job.clone(),
            trace_id: format!("{:016x}", order.number),
            window: window(order, &all),
            options: order.options,
            same_steps: same_steps(&all, order, plan, apart),
            step_ms: plan.step_time.map(|time| time.as_secs_f64() * 1e3),
            apart_ms: apart.map(|apart| apart as f64 / 1e6),
            ranks: all,
        }
    }

    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        new_file::write(&Self::path(folder), |out| Ok(out.write_all(text.as_bytes())?))
    }

    fn here(&self) -> impl Iterator<Item = &OneRank> {
        self.ranks.iter().filter(|rank| rank.file.is_some())
    }

    pub(super) fn is_whole(&self) -> bool {
        self.here().count() == self.ranks.len()
    }

    /// One line for all ranks with the same reason.
    pub(super) fn complaints(&self) -> Vec<String> {
        let mut by_reason: Vec<(&str, Vec<u64>)> = Vec::new();
        for rank in self.ranks.iter().filter(|rank| rank.file.is_none()) {
            let why = rank.why.as_deref().unwrap_or("it gave no trace");
            match by_reason.iter_mut().find(|(known, _)| *known == why) {
                Some((_, ranks)) => ranks.push(rank.rank.process().0.into()),
                None => by_reason.push((why, vec![rank.rank.process().0.into()])),
            }
        }
        let line = |(why, ranks): &(&str, Vec<u64>)| {
            let noun = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{noun} {}: {why}", figure::runs(ranks))
        };
        let mut lines: Vec<_> = by_reason.iter().map(line).collect();
        lines.extend(self.shortened());
        match (self.same_steps, self.apart_ms, self.step_ms) {
            (Some(false), ..) => lines.push(
                "not all traces hold all optimizer calls of the requested steps and of the further one; manifest.json has the counts"
                    .to_owned(),
            ),
            (None, Some(apart), Some(step)) if matches!(self.window, Window::Steps { .. }) => lines.push(format!(
                "the ranks began their first step {apart:.0} ms apart, and a step takes {step:.0} ms: either a rank runs that far ahead, or the ranks count steps differently"
            )),
            _ => {}
        }
        lines
    }

    /// The ranks whose traces are shorter than requested.
    fn shortened(&self) -> Option<String> {
        let Window::Time { asked_ms, .. } = self.window else { return None };
        let short: Vec<_> = self
            .ranks
            .iter()
            .filter_map(|rank| Some((u64::from(rank.rank.process().0), rank.traced_ms?)))
            .filter(|(_, traced)| *traced < asked_ms * SHORT)
            .collect();
        let least = short.iter().map(|(_, traced)| *traced).reduce(f64::min)?;
        let ranks: Vec<_> = short.iter().map(|(rank, _)| *rank).collect();
        let (noun, its) = if ranks.len() == 1 {
            ("rank", "its trace covers")
        } else {
            ("ranks", "their traces cover at least")
        };
        Some(format!(
            "{noun} {}: {its} {least:.0} ms of the requested {asked_ms:.0} ms: Kineto ended early, as it does when its buffers are full",
            figure::runs(&ranks)
        ))
    }

    pub(super) fn summary(&self, folder: &Path) -> String {
        let (here, of) = (self.here().count(), self.ranks.len());
        if here == 0 {
            return format!("no rank gave a trace; {} says why", Self::path(folder).display());
        }
        let what = match self.window {
            Window::Steps { first_step, last_step, .. } => format!("steps {first_step} to {last_step}"),
            Window::Time { duration_ms, asked_ms, .. } if duration_ms < asked_ms * SHORT => {
                format!("{duration_ms:.0} ms of the requested {asked_ms:.0} ms")
            }
            Window::Time { duration_ms, .. } => format!("{duration_ms:.0} ms"),
        };
        let bytes = figure::bytes(self.here().map(|rank| rank.bytes).sum());
        format!("{here} of {of} ranks gave a trace of {what}: {} ({bytes})", folder.display())
    }
}

fn window(order: &KinetoOrder, all: &[OneRank]) -> Window {
    match order.window {
        KinetoWindow::Steps { first, steps, calls, .. } => Window::Steps {
            first_step: first.0,
            last_step: first.0 + u64::from(steps) - 1,
            further_steps: KinetoWindow::BEYOND,
            optimizer_calls_per_step: calls,
        },
        KinetoWindow::Time { at, length } => {
            let asked_ms = length.milliseconds();
            let longest = all.iter().filter_map(|rank| rank.traced_ms).reduce(f64::max);
            Window::Time { start_unix_ns: at.0, duration_ms: longest.unwrap_or(asked_ms), asked_ms }
        }
    }
}

/// Compares step counts, unless the clocks contradict them: a rank that does not wait for others may be steps
/// ahead.
fn same_steps(all: &[OneRank], order: &KinetoOrder, plan: &Plan, apart: Option<i64>) -> Option<bool> {
    let KinetoWindow::Steps { steps, calls, .. } = order.window else { return None };
    let here: Vec<_> = all.iter().filter(|rank| rank.file.is_some()).collect();
    if here.is_empty() {
        return None;
    }
    let whole = (u64::from(steps) + u64::from(KinetoWindow::BEYOND)) * u64::from(calls);
    if here.iter().any(|rank| u64::from(rank.optimizer_steps) != whole) {
        return Some(false);
    }
    let each = plan.step_time.and_then(|time| i64::try_from(time.as_nanos()).ok());
    apart.zip(each).is_none_or(|(apart, each)| apart < each).then_some(true)
}

/// Clocks that differ by less than this count as synchronized. The collectors use the same limit.
const SAME_CLOCK: i64 = 500_000_000;

impl OneRank {
    /// When its first step began, by one clock for all.
    fn start(&self) -> Option<i64> {
        let offset = self.clock_offset_ns.filter(|offset| offset.abs() >= SAME_CLOCK).unwrap_or(0);
        i64::try_from(self.first_step_unix_ns?).ok()?.checked_sub(offset)
    }
}

fn one_rank(rank: Rank, one: &One, ranks: &Ranks, fetch: &Fetch) -> OneRank {
    let (mut status, mut why) = ranks.word(one);
    let fetched = fetch.of(rank);
    let here = fetched.filter(|fetched| fetched.why.is_none());
    if let Some(Fetched { why: Some(lost), .. }) = fetched {
        (status, why) = ("lost", Some(lost.clone()));
    }
    let nanoseconds = |moment: Option<Moment>| moment.map(|moment| moment.0);
    OneRank {
        rank,
        host: one.host.clone(),
        pid: one.reported.as_ref().map(|reported| reported.pid.0),
        status,
        why,
        file: here.map(|_| fetch::name(rank)),
        bytes: here.map_or(0, |here| here.bytes),
        uncompressed_bytes: here.map_or(0, |here| here.end.bytes),
        optimizer_steps: here.map_or(0, |here| here.end.optimizer_steps),
        first_step_unix_ns: here.and_then(|here| nanoseconds(here.end.first)),
        last_step_unix_ns: here.and_then(|here| nanoseconds(here.end.last)),
        traced_ms: here.and_then(|here| here.traced).map(|traced| traced.as_secs_f64() * 1e3),
        clock_offset_ns: one.reported.as_ref().map(|reported| reported.clock_offset),
        asks_every_s: one.every.map(|every| every.as_secs_f64()),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xpu_wire::id::Step;

    use super::*;

    fn rank(number: u32, optimizer_steps: u32, first: u64) -> OneRank {
        OneRank {
            rank: Rank(number),
            host: None,
            pid: None,
            status: "written",
            why: None,
            file: Some(String::new()),
            bytes: 0,
            uncompressed_bytes: 0,
            optimizer_steps,
            first_step_unix_ns: Some(first),
            last_step_unix_ns: None,
            traced_ms: None,
            clock_offset_ns: None,
            asks_every_s: None,
        }
    }

    #[test]
    fn it_is_unknown_whether_a_rank_that_runs_ahead_traces_the_same_steps() {
        let window = KinetoWindow::Steps { first: Step(7), steps: 3, latest: Step(4), calls: 1 };
        let order = KinetoOrder {
            number: 1,
            window,
            limit: xpu_wire::unit::Nanoseconds(0),
            options: KinetoOptions::default(),
        };
        let step_time = Some(Duration::from_millis(40));
        let plan = Plan { window, lead: Duration::ZERO, step_time, instead_of_steps: None };
        let same = |calls, apart: i64| {
            let ranks = [rank(0, 4, 1_000_000_000), rank(1, calls, 1_000_000_000 + apart as u64)];
            same_steps(&ranks, &order, &plan, Some(apart))
        };
        assert_eq!(same(4, 30_000_000), Some(true));
        assert_eq!(same(4, 144_000_000), None);
        assert_eq!(same(3, 0), Some(false), "its last step may lack kernels");
    }
}
