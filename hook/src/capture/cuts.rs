//! When the steps of a capture begin on the GPU. The GPU may lag behind the launches.

use super::{Kept, Span};

/// The most by which CUPTI's begin of an operation may precede that of its event: the two clocks differed by
/// about 13 us on H200s.
const SOONER: i64 = 20_000;

/// An estimated end of a step is made earlier by this much, because work that begins after the end belongs to
/// the next step.
const EARLIER: i64 = 2_000;

/// When each step begins on the GPU: at the mark, if the GPU had finished everything by then; else with the
/// first timed operation launched after the mark; if there is none, at the usual distance after the last
/// timed operation. `works` are the begins and ends of all GPU work, in order: they are the only information
/// about launches before the first mark.
pub(super) fn cuts(marks: &[u64], operations: &[Kept], works: &[(i64, i64)]) -> Vec<i64> {
    let spans = |from: u64, to: u64| {
        operations.iter().filter(move |kept| (from..to).contains(&kept.at)).filter_map(|kept| {
            match kept.span {
                Span::Gpu { begin, took, .. } => Some((begin, begin + took as i64)),
                _ => None,
            }
        })
    };
    // When the timed operations before each mark had ended.
    let ends: Vec<_> = marks.iter().map(|&mark| spans(0, mark).map(|(_, end)| end).max()).collect();
    let cut = |(index, &mark): (usize, &u64)| {
        let now = mark as i64;
        let is_busy = match ends[index] {
            Some(end) => end > now,
            None => works.iter().any(|&(begin, end)| begin <= now && end > now),
        };
        if !is_busy {
            return Some(now);
        }
        let next = marks.get(index + 1).copied().unwrap_or(u64::MAX);
        let first = spans(mark, next).map(|(begin, _)| begin).min()?;
        Some(begin_of(first, works).max(now))
    };
    let found: Vec<_> = marks.iter().enumerate().map(cut).collect();
    let mut tails: Vec<_> =
        found.iter().zip(&ends).filter_map(|(cut, end)| Some((*cut)? - (*end)?)).collect();
    tails.sort_unstable();
    let tail = tails.get(tails.len() / 2).copied().unwrap_or(0);
    let guessed = |index: usize| {
        let now = marks[index] as i64;
        ends[index].map_or(now, |end| (end + tail - EARLIER).max(now))
    };
    let mut latest = i64::MIN;
    let in_order = |(index, cut): (usize, &Option<i64>)| {
        latest = latest.max(cut.unwrap_or_else(|| guessed(index)));
        latest
    };
    found.iter().enumerate().map(in_order).collect()
}

/// The begin of an operation: `begin`, measured by its event, or CUPTI's begin of the first work that lies
/// mostly after `begin`, if that is earlier.
fn begin_of(begin: i64, works: &[(i64, i64)]) -> i64 {
    let near = works.partition_point(|&(at, _)| at < begin - SOONER);
    let mut sooner = works[near..].iter().take_while(|&&(at, _)| at < begin);
    sooner.find(|&&(at, end)| at.midpoint(end) >= begin).map_or(begin, |&(at, _)| at)
}

/// The assumed launch time of work that began at `begin`: the nearest time between the marks of its step.
/// `None` if the work is in no step.
pub(super) fn launched_at(begin: i64, marks: &[u64], cuts: &[i64]) -> Option<u64> {
    let step = cuts.partition_point(|&cut| cut <= begin).checked_sub(1)?;
    let end = *marks.get(step + 1)?;
    Some((begin.max(0) as u64).clamp(marks[step], end.saturating_sub(1).max(marks[step])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(at: u64, begin: i64) -> Kept {
        Kept { at, label: 0, thread: 0, sequence: None, span: Span::Gpu { stream: 1, begin, took: 10_000 } }
    }

    #[test]
    fn a_gpu_that_is_steps_behind_ends_those_before_first() {
        // Everything is launched in an instant. The GPU still has four milliseconds of earlier steps to do,
        // and a step takes two.
        let marks = [1_000, 2_000, 3_000];
        let operations = [timed(1_500, 4_000_000), timed(2_500, 6_000_000)];
        let before = (0, 3_990_000);
        // A step's untimed work begins 10 us after its timed work.
        assert_eq!(cuts(&marks, &operations, &[before]), [4_000_000, 6_000_000, 7_998_000]);
        // If the GPU was idle at the mark, untimed work before the first timed operation belongs to the same
        // step, however long it takes.
        assert_eq!(cuts(&marks, &operations, &[(0, 900), (1_400, 3_990_000)])[0], 1_000);
    }

    #[test]
    fn a_gpu_that_is_behind_begins_its_steps_later() {
        let marks = [100_000, 200_000, 300_000];
        // The GPU had finished everything at the first mark, and is 60 us behind at the others.
        let operations = [
            timed(110_000, 120_000),
            timed(150_000, 195_000),
            timed(210_000, 260_000),
            timed(280_000, 350_000),
        ];
        let cuts = cuts(&marks, &operations, &[]);
        // The last step ends at the same distance after its timed work as the step before it.
        assert_eq!(cuts, [100_000, 260_000, 413_000]);
        let at = |begin| launched_at(begin, &marks, &cuts);
        assert_eq!(
            [99_999, 100_000, 259_999, 260_000, 412_999, 413_000].map(at),
            [None, Some(100_000), Some(199_999), Some(260_000), Some(299_999), None]
        );
    }

    /// By CUPTI's clock, everything began a microsecond earlier.
    #[test]
    fn the_first_operation_of_a_step_belongs_to_it_by_either_clock() {
        let marks = [1_000, 2_000];
        let operations = [timed(1_500, 4_000_000)];
        let works = [(0, 3_991_000), (3_991_000, 3_999_000), (3_999_000, 4_009_000)];
        assert_eq!(cuts(&marks, &operations, &works)[0], 3_999_000);
    }

    #[test]
    fn a_step_of_which_nothing_was_timed_begins_no_later_than_the_next() {
        let marks = [0, 10_000, 20_000, 30_000];
        let operations = [timed(1_000, 50_000), timed(25_000, 70_000)];
        let cuts = cuts(&marks, &operations, &[(0, 40_000)]);
        assert!(cuts.is_sorted(), "{cuts:?}");
    }
}
