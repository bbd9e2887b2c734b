//! The output for one capture: a JSON document in one line, or a few lines of text.

use std::fmt::Write as _;

use serde::Serialize;
use xpu_analysis::what_if::{Cause, Estimate, Lost, Total};
use xpu_model::figure::{clock, count, counted, time_of_day};
use xpu_wire::{id::JobName, unit::Moment};

/// Number of ranks and hosts named in a line of text.
const NAMED: usize = 3;

#[derive(Debug, Serialize)]
pub(super) struct Line {
    job: Option<JobName>,
    /// Seconds since 1970: now, and when the command was started.
    at: f64,
    since: f64,
    #[serde(flatten)]
    turn: Turn,
    total: Total,
}

#[derive(Debug, Serialize)]
#[serde(tag = "state", rename_all = "snake_case")]
enum Turn {
    Estimate { estimate: Box<Estimate> },
    Failed { why: String },
}

impl Line {
    pub(super) fn of(
        job: Option<&JobName>,
        since: Moment,
        estimate: Result<Estimate, String>,
        total: Total,
    ) -> Self {
        let seconds = |moment: Moment| moment.0 as f64 / 1e9;
        let turn = match estimate {
            Ok(estimate) => Turn::Estimate { estimate: Box::new(estimate) },
            Err(why) => Turn::Failed { why },
        };
        Self { job: job.cloned(), at: seconds(Moment::now()), since: seconds(since), turn, total }
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    pub(super) fn text(&self) -> String {
        let moment = |seconds: f64| Moment((seconds * 1e9) as u64);
        let mut text = format!("{}  ", time_of_day(moment(self.at)));
        // Writing to a String cannot fail.
        let _ = match &self.turn {
            Turn::Failed { why } => writeln!(text, "no estimate: {why}"),
            Turn::Estimate { estimate } => {
                let (first, last) = (count(estimate.first.0), count(estimate.last.0));
                let steps = counted(estimate.ranks, "rank", "ranks");
                writeln!(text, "steps {first} to {last} of {steps}: slowdown S {:.3}", estimate.slowdown)
                    .and_then(|()| {
                        estimate.sentences.iter().try_for_each(|said| writeln!(text, "          {said}"))
                    })
            }
        };
        if self.total.estimates > 0 {
            let _ = writeln!(text, "          {} since {}", lost(&self.total), clock(moment(self.since)));
        }
        text
    }
}

/// `lost 0.118 of 0.456 GPU-hours (0.30 EUR) in 1,005 steps: ranks 0.110 (rank 5 0.110), communication 0.002;`
fn lost(total: &Total) -> String {
    let hours = |lost: &Lost| format!("{:.3}", lost.gpu_hours);
    let mut text = "lost ".to_owned();
    if let Some(all) = total.lost.get(&Cause::All) {
        let money = all.money.map_or_else(String::new, |money| format!(" ({money})"));
        let _ = write!(text, "{} of {:.3} GPU-hours{money}", hours(all), total.gpu_hours);
    }
    let _ = write!(text, " in {} steps", count(total.steps));
    let causes = total.lost.iter().filter(|(cause, _)| **cause != Cause::All);
    let mut between = ": ";
    for (cause, of) in causes {
        let who: Vec<_> = match cause {
            Cause::Ranks => {
                let all = total.ranks.iter().take(NAMED);
                all.map(|of| format!("rank {} {}", of.rank, hours(&of.lost))).collect()
            }
            Cause::Host => {
                let all = total.hosts.iter().take(NAMED);
                all.map(|of| format!("{} {}", of.host, hours(&of.lost))).collect()
            }
            _ => Vec::new(),
        };
        let _ = write!(text, "{between}{} {}", cause.word(), hours(of));
        if !who.is_empty() {
            let _ = write!(text, " ({})", who.join(", "));
        }
        between = ", ";
    }
    text
}
