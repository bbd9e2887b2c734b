//! The output for one capture: a JSON document in one line, or a few lines of text.

use std::fmt::Write as _;

use serde::Serialize;
use xpu_analysis::what_if::{Estimate, Total};
use xpu_model::{
    figure::{count, counted, time_of_day},
    finding::Price,
    what_if,
};
use xpu_wire::{frame::JobWhatIf, id::JobName, unit::Moment};

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
        [since, at]: [Moment; 2],
        estimate: Result<Estimate, String>,
        total: Total,
    ) -> Self {
        let seconds = |moment: Moment| moment.0 as f64 / 1e9;
        let turn = match estimate {
            Ok(estimate) => Turn::Estimate { estimate: Box::new(estimate) },
            Err(why) => Turn::Failed { why },
        };
        Self { job: job.cloned(), at: seconds(at), since: seconds(since), turn, total }
    }

    pub(super) fn json(&self) -> serde_json::Result<String> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    /// The line as text, with the sum if there is one.
    pub(super) fn text(&self, sum: Option<&JobWhatIf>, price: Option<Price>) -> String {
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
        if let Some(sum) = sum.and_then(|sum| what_if::sum(sum, price)) {
            let _ = writeln!(text, "          lost {sum}");
        }
        text
    }
}
