//! The result of a capture, in words.

use std::collections::BTreeMap;

use xpu_model::figure;
use xpu_wire::{
    frame::{CaptureAccount, CaptureEnd, Tracing},
    id::Step,
};

use super::{super::Extent, Tally, took};

/// Ranks named one by one.
const NAMED: usize = 8;

impl Tally {
    /// The problems; for a hung job, including the reason.
    pub(in crate::capture) fn complaints(&self, stall: Option<&str>) -> Vec<String> {
        let mut all: Vec<_> = stall.iter().map(|evidence| format!("the job hangs: {evidence}")).collect();
        all.extend(
            self.missing().into_iter().map(|missing| format!("rank {}: {}", missing.rank, missing.why)),
        );
        for (rank, account) in self.accounts() {
            match account.ended {
                CaptureEnd::Done => {}
                // The reason appears once, for all.
                CaptureEnd::TimeUp if stall.is_some() => {}
                CaptureEnd::TimeUp => {
                    all.push(match self.window {
                        Some(_) => {
                            format!("rank {rank}: it did not finish in time{}", self.share_of(account))
                        }
                        None => format!("rank {rank}: it did not reach the last step in time"),
                    });
                }
                CaptureEnd::ProcessEnd if self.window.is_some() => {
                    all.push(format!("rank {rank}: it ended before the window{}", self.share_of(account)));
                }
                CaptureEnd::ProcessEnd => all.push(format!("rank {rank}: it ended before the last step")),
            }
            if let Tracing::Recorded { dropped: lost @ 1.., .. } = account.activity {
                all.push(format!("rank {rank}: {lost} of CUPTI's records were lost"));
            }
            if account.dropped > 0 {
                all.push(format!(
                    "rank {rank}: {} operations were dropped for lack of space",
                    account.dropped
                ));
            }
        }
        all.extend(self.refusals());
        let more = all.len().saturating_sub(NAMED);
        all.truncate(NAMED);
        if more > 0 {
            all.push(format!("and {more} more; `xpu-top report` lists all"));
        }
        all
    }

    /// `: it recorded 3.1 s of 60.0 s`
    fn share_of(&self, account: &CaptureAccount) -> String {
        let took = took(account).zip(self.window).filter(|(took, window)| *took < window.length);
        took.map_or_else(String::new, |(took, window)| {
            format!(": it recorded {} of {}", Extent::Time(took), Extent::Time(window.length))
        })
    }

    /// Additional data that could not be recorded, with the ranks grouped by reason.
    fn refusals(&self) -> impl Iterator<Item = String> {
        let mut all: BTreeMap<(&str, &str), Vec<String>> = BTreeMap::new();
        // A rank without a completed step has not begun to record, and its reason is already given.
        for (rank, account) in self.accounts().filter(|(_, account)| account.marks.len() > 1) {
            let kinds = [("kernels", &account.activity), ("functions of Python", &account.functions)];
            for (what, tracing) in kinds {
                if let Tracing::Refused { why } = tracing {
                    all.entry((what, why)).or_default().push(rank.to_string());
                }
            }
        }
        all.into_iter().map(|((what, why), ranks)| {
            let word = if ranks.len() == 1 { "rank" } else { "ranks" };
            format!("{word} {} without all {what}: {why}", ranks.join(","))
        })
    }

    /// `500 ms of 8 of 8 ranks, 2,160 operations, none dropped`, `steps 812 to 814 of 8 of 8 ranks, with samples since step 793, 2,160 operations, none dropped`
    pub(in crate::capture) fn summary(&self) -> String {
        let operations = self.accounts().map(|(_, account)| account.operations).sum::<u64>();
        let dropped = self.accounts().map(|(_, account)| account.dropped).sum::<u64>();
        let ranks = format!("{} of {}", self.whole(), figure::counted(self.ranks.len(), "rank", "ranks"));
        format!(
            "{}{}, {}, {}",
            self.steps(&ranks),
            self.sampled(),
            figure::counted(operations as usize, "operation", "operations"),
            if dropped == 0 { "none dropped".to_owned() } else { format!("{dropped} dropped") },
        )
    }

    /// The requested steps that all sending ranks have.
    fn steps(&self, ranks: &str) -> String {
        if let Some(window) = self.window {
            let asked = Extent::Time(window.length);
            return match self.recorded().filter(|took| *took < window.length) {
                Some(took) => format!("{} of the requested {asked} of {ranks}", Extent::Time(took)),
                None => format!("{asked} of {ranks}"),
            };
        }
        let (first, last) = (self.order.first, self.order.last());
        let ends =
            self.accounts().map(|(_, account)| account.marks.last().map_or(Step(0), |mark| mark.completed));
        match ends.min() {
            Some(end) if end < first => {
                format!("{ranks} completed no step after {end}, and none of the requested {first} to {last}")
            }
            Some(end) => format!("steps {first} to {} of {ranks}", end.min(last)),
            None => format!("steps {first} to {last} of {ranks}"),
        }
    }

    /// The earlier steps with data.
    fn sampled(&self) -> String {
        let begins = |account: &CaptureAccount| account.marks.first().map(|mark| mark.completed);
        let sampled = self.accounts().filter(|(_, account)| account.sampled > begins(account));
        // The first mark is the begin of the first recorded step.
        match sampled.filter_map(|(_, account)| account.marks.first()).map(|mark| mark.completed.0 + 1).max()
        {
            Some(since) => format!(", with samples since step {since}"),
            None => String::new(),
        }
    }
}
