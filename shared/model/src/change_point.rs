//! Where a series of figures changed permanently: from which figure on, and the medians before and after.
//!
//! A series is cut in two at the place that explains most of its variance, and the parts are cut again. A cut
//! counts only if the medians on both sides differ by more than noise, and both sides have enough figures. A
//! single outlier, such as a checkpoint, changes no median.

use crate::job::median;

/// Figures on either side that prove a change.
const LEAST: usize = 8;

/// Least relative change of the median, and least multiple of the usual spread.
const SHARE: f64 = 0.04;
const SPREADS: f64 = 3.0;

/// The smallest noise that is assumed, as a share.
const LEAST_SPREAD: f64 = 0.002;

/// Largest number of changes in one series, because a series with more has no steady segments; and largest
/// number of cuts that are tried to find them.
const MOST: usize = 8;
const TRIED: usize = 32;

/// The multiple of the noise's variance that a cut must explain to be tried.
const SIGNIFICANT: f64 = 12.0;

/// One permanent change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ChangePoint {
    /// The first figure after it.
    pub at: usize,
    /// The medians between this change and its neighbours.
    pub before: f64,
    pub after: f64,
}

impl ChangePoint {
    /// Relative change; negative for a decrease.
    pub fn by(&self) -> f64 {
        self.after / self.before - 1.0
    }
}

/// Oldest first.
pub fn changes(figures: &[f64]) -> Vec<ChangePoint> {
    let calm = without_outliers(figures);
    let noise = noise(figures);
    let mut cuts = Vec::new();
    let mut open = vec![(0, figures.len())];
    while let Some((from, to)) = open.pop() {
        let Some((gain, at)) = best_cut(&calm[from..to]) else { continue };
        // If a change reverts, the medians show it only after the series is cut twice.
        if cuts.len() < TRIED && gain > SIGNIFICANT * noise {
            cuts.push(from + at);
            open.extend([(from, from + at), (from + at, to)]);
        }
    }
    cuts.sort_unstable();
    // After further cuts, a segment may no longer differ from its neighbour.
    loop {
        let ends = |at: usize| {
            let from = if at == 0 { 0 } else { cuts[at - 1] };
            (from, cuts.get(at + 1).copied().unwrap_or(figures.len()))
        };
        let changes: Vec<_> = (0..cuts.len())
            .map(|at| {
                let ((from, to), cut) = (ends(at), cuts[at]);
                let middles = differ(&figures[from..cut], &figures[cut..to])?;
                Some(ChangePoint { at: cut, before: middles.0, after: middles.1 })
            })
            .collect();
        match changes.iter().position(Option::is_none) {
            Some(none) => drop(cuts.remove(none)),
            None => return changes.into_iter().flatten().take(MOST).collect(),
        }
    }
}

/// Each figure replaced by the median of the five around it.
fn without_outliers(figures: &[f64]) -> Vec<f64> {
    let around = |at: usize| {
        let (from, to) = (at.saturating_sub(2), (at + 3).min(figures.len()));
        median(figures[from..to].to_vec()).unwrap_or(0.0)
    };
    (0..figures.len()).map(around).collect()
}

/// The cut with the smallest remaining sum of squares, and the reduction.
fn best_cut(figures: &[f64]) -> Option<(f64, usize)> {
    let all: f64 = figures.iter().sum();
    let whole = all * all / figures.len() as f64;
    let mut before: f64 = figures.iter().take(LEAST).sum();
    let mut best = None;
    for at in LEAST..=figures.len().checked_sub(LEAST)? {
        let (left, right) = (at as f64, (figures.len() - at) as f64);
        let gain = before * before / left + (all - before) * (all - before) / right - whole;
        if best.is_none_or(|(most, _)| gain > most) {
            best = Some((gain, at));
        }
        before += figures.get(at)?;
    }
    best
}

/// The variance among neighbours, which permanent changes do not increase.
fn noise(figures: &[f64]) -> f64 {
    let steps = figures.windows(2).map(|pair| (pair[1] - pair[0]).abs()).collect();
    let usual = median(figures.to_vec()).unwrap_or(0.0);
    let spread = (median(steps).unwrap_or(0.0) * 1.4826).max(LEAST_SPREAD * usual);
    spread * spread / 2.0
}

/// The medians of both, if they differ by more than the spread of the figures.
fn differ(before: &[f64], after: &[f64]) -> Option<(f64, f64)> {
    let (was, is) = (median(before.to_vec())?, median(after.to_vec())?);
    let spread = |figures: &[f64], middle: f64| {
        median(figures.iter().map(|figure| (figure - middle).abs()).collect()).unwrap_or(0.0) * 1.4826
    };
    let spread = spread(before, was).max(spread(after, is));
    let change = (is - was).abs();
    let close = |figures: &[f64], own: f64, other: f64| {
        figures.iter().filter(|figure| (*figure - own).abs() < (*figure - other).abs()).count() >= LEAST
    };
    let proven = close(before, was, is) && close(after, is, was);
    (proven && was > 0.0 && change > SHARE * was && change > SPREADS * spread).then_some((was, is))
}

#[cfg(test)]
mod tests {
    use xpu_wire::sampling::priority;

    use super::*;

    /// Steps of this many milliseconds, two percent off at most.
    fn steps(of: &[(usize, f64)]) -> Vec<f64> {
        let noise = |n: u64| 0.98 + 0.04 * (priority(n) >> 11) as f64 / (1_u64 << 53) as f64;
        let row = of.iter().flat_map(|&(count, time)| std::iter::repeat_n(time, count));
        row.enumerate().map(|(at, time)| time * noise(at as u64)).collect()
    }

    fn at(figures: &[f64]) -> Vec<usize> {
        changes(figures).iter().map(|change| change.at).collect()
    }

    #[test]
    fn noise_and_one_long_step_are_no_change() {
        assert_eq!(at(&steps(&[(300, 100.0)])), []);
        let mut row = steps(&[(300, 100.0)]);
        row[150] = 30_000.0;
        row[151] = 4_000.0;
        assert_eq!(at(&row), []);
        assert_eq!(at(&[]), []);
        assert_eq!(at(&[1.0; 9]), []);
    }

    #[test]
    fn a_change_is_found_where_it_was_and_by_how_much() {
        let found = changes(&steps(&[(200, 100.0), (60, 125.0)]));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].at.abs_diff(200) <= 2 && (found[0].by() - 0.25).abs() < 0.01, "{found:?}");
    }

    #[test]
    fn there_and_back_are_two_changes() {
        let found = changes(&steps(&[(100, 100.0), (40, 130.0), (100, 100.0)]));
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].by() > 0.28 && found[1].by() < -0.2, "{found:?}");
    }

    #[test]
    fn a_change_that_has_just_begun_is_not_reported_yet() {
        assert_eq!(at(&steps(&[(100, 100.0), (7, 200.0)])), []);
        assert_eq!(at(&steps(&[(100, 100.0), (9, 200.0)])).len(), 1);
    }

    #[test]
    fn a_small_change_is_ignored_and_a_long_step_hides_no_change() {
        assert_eq!(at(&[[100.0; 60], [102.0; 60]].concat()), []);
        // A checkpoint every twenty seconds.
        let mut row = steps(&[(2_000, 100.0), (300, 110.0)]);
        row.iter_mut().skip(7).step_by(20).for_each(|step| *step = 30_000.0);
        assert_eq!(at(&row).len(), 1, "{:?}", changes(&row));
        assert!(at(&row)[0].abs_diff(2_000) <= 2);
    }
}
