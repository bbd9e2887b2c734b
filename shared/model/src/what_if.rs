//! What stragglers have cost a job, as text: the same on the screen, on the web page and in the output of
//! `xpu-top what-if --live`.

use std::fmt::Write as _;

use xpu_wire::{
    frame::{JobWhatIf, StragglerCause},
    unit::Moment,
};

use crate::{
    figure::{clock, count, counted, tenths, time_of_day},
    finding::Price,
};

/// Number of ranks and hosts named.
const NAMED: usize = 3;

/// What the last capture showed: its sentences, or why it gave no estimate.
pub fn last(of: &JobWhatIf) -> Vec<String> {
    if of.why.is_empty() { of.sentences.clone() } else { vec![format!("no estimate: {}", of.why)] }
}

/// `0.118 of 0.456 GPU-hours (0.30 EUR) in 1,005 steps, by 12 captures from 2026-11-27 01:40:31 to 02:40:30
/// UTC: ranks 0.110 (rank 5 0.110), communication 0.002`. `None` before the first estimate.
pub fn sum(of: &JobWhatIf, price: Option<Price>) -> Option<String> {
    if of.estimates == 0 {
        return None;
    }
    let lost = |wanted| of.lost.iter().find_map(|&(cause, hours)| (cause == wanted).then_some(hours));
    let all = lost(StragglerCause::All).unwrap_or_default();
    let money = price.map_or_else(String::new, |price| format!(" ({})", price.of(all)));
    let mut text = format!("{} of {} GPU-hours{money}", hours(all), hours(of.gpu_hours));
    let captures = counted(of.estimates as usize, "capture", "captures");
    // Writing to a String cannot fail.
    let _ = write!(text, " in {} steps, by {captures} {}", count(of.steps), between(of.since, of.at));
    let causes = of.lost.iter().filter(|(cause, _)| *cause != StragglerCause::All);
    for (at, &(cause, of_cause)) in causes.enumerate() {
        let named: Vec<String> = match cause {
            StragglerCause::Ranks => {
                let all = of.ranks.iter().take(NAMED);
                all.map(|&(rank, of_rank)| format!("rank {rank} {}", hours(of_rank))).collect()
            }
            StragglerCause::Host => {
                let all = of.hosts.iter().take(NAMED);
                all.map(|(host, of_host)| format!("{host} {}", hours(*of_host))).collect()
            }
            _ => Vec::new(),
        };
        let _ = write!(text, "{}{} {}", if at == 0 { ": " } else { ", " }, cause.word(), hours(of_cause));
        if !named.is_empty() {
            let _ = write!(text, " ({})", named.join(", "));
        }
    }
    Some(text)
}

/// `from 2026-11-27 01:40:31 to 02:40:30 UTC`; with the second date if it is another one.
fn between(since: Moment, at: Moment) -> String {
    let (from, to) = (clock(since), clock(at));
    let (from_day, to_day) = (from.split(' ').next(), to.split(' ').next());
    let from = from.trim_end_matches(" UTC");
    if from_day == to_day {
        format!("from {from} to {} UTC", time_of_day(at))
    } else {
        format!("from {from} to {to}")
    }
}

fn hours(hours: f64) -> String {
    if hours.abs() < 99.95 { format!("{hours:.3}") } else { tenths(hours) }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{frame::example, id::Rank};

    use super::*;

    #[test]
    fn a_sum_has_its_time_its_captures_and_its_causes() {
        let mut of = example::what_if();
        assert_eq!(
            sum(&of, "2.5 EUR".parse().ok()).as_deref(),
            Some(
                "1.204 of 8.827 GPU-hours (3.01 EUR) in 17,670 steps, by 59 captures from 2026-11-27 01:40:31 to 06:33:07 UTC: ranks 1.198 (rank 12 1.198), communication 0.002"
            )
        );
        of.ranks = (0..5).map(|rank| (Rank(rank), 240.04)).collect();
        let text = sum(&of, None).unwrap();
        assert!(text.contains("(rank 0 240.0, rank 1 240.0, rank 2 240.0), comm"), "{text}");
        of.at.0 += 86_400_000_000_000;
        let text = sum(&of, None).unwrap();
        assert!(text.contains("from 2026-11-27 01:40:31 to 2026-11-28 06:33:07 UTC"), "{text}");
        of.estimates = 0;
        assert_eq!(sum(&of, None), None);
    }

    #[test]
    fn a_capture_without_an_estimate_is_explained() {
        let mut of = example::what_if();
        assert!(last(&of)[0].starts_with("If rank 12"));
        of.why = "the job hangs".to_owned();
        assert_eq!(last(&of), ["no estimate: the job hangs"]);
    }
}
