//! Replacement durations: the ideal ones, and those of the other workers.

use super::{
    Job,
    graph::{Durations, Index, mean},
};

/// Whether an operation is replaced, by its index and place.
type Chosen<'a> = &'a dyn Fn(Index, usize) -> bool;

impl Job {
    /// Duration of each operation without stragglers: for compute the mean of its class, for communication
    /// the median, over all stages, replicas and steps.
    pub(crate) fn ideal(&self) -> Durations {
        let mut ideal = self.actual.clone();
        for members in self.classes() {
            let row = self.shape.row();
            let is_compute = self.graph.operations[members[0]].kind.is_compute();
            let typical = |all: &[f64]| {
                let cells = || members.iter().flat_map(|&index| index * row..(index + 1) * row);
                let mut free: Vec<usize> = cells().filter(|&cell| self.crowded_by(cell).is_none()).collect();
                if free.is_empty() {
                    free = cells().collect();
                }
                let values: Vec<f64> = free.iter().map(|&cell| all[cell]).collect();
                if !is_compute {
                    return median(values);
                }
                let shares: Vec<f64> = free.iter().map(|&cell| self.share(cell)).collect();
                mean(&values) / mean(&shares)
            };
            let (own, transfer) = (typical(&self.actual.own), typical(&self.actual.transfer));
            for &index in &members {
                let share = self.graph.operations[index].share;
                ideal.own[index * row..(index + 1) * row].fill(own * share);
                ideal.transfer[index * row..(index + 1) * row].fill(transfer * share);
            }
        }
        ideal
    }

    /// `base`, with the chosen operations as in `other`.
    pub(crate) fn replaced(&self, base: &Durations, other: &Durations, chosen: Chosen<'_>) -> Durations {
        let mut new = base.clone();
        let row = self.shape.row();
        for index in 0..self.graph.operations.len() {
            for place in (0..row).filter(|&place| chosen(index, place)) {
                let cell = index * row + place;
                new.own[cell] = other.own[cell];
                new.transfer[cell] = other.transfer[cell];
            }
        }
        new
    }

    /// Gives the chosen operations the durations of the others: the k-th shortest of n durations of a class
    /// becomes the k-th n-quantile of the others'. Differences between batches remain; slowness and pauses
    /// disappear.
    pub(crate) fn make_like(&self, durations: &mut Durations, chosen: Chosen<'_>, others: Chosen<'_>) {
        let row = self.shape.row();
        for members in self.classes() {
            let cells = |which: Chosen<'_>| -> Vec<usize> {
                let of = |&index: &Index| {
                    (0..row).filter(move |&place| which(index, place)).map(move |place| index * row + place)
                };
                members.iter().flat_map(of).collect()
            };
            let (mine, mut theirs) = (cells(chosen), cells(others));
            theirs.retain(|&cell| self.crowded_by(cell).is_none());
            if !mine.is_empty() && !theirs.is_empty() {
                let share = |cell: usize| self.share(cell);
                let cells = Cells { mine: &mine, theirs: &theirs };
                map_quantiles(&mut durations.own, &self.actual.own, &share, cells);
                map_quantiles(&mut durations.transfer, &self.actual.transfer, &share, cells);
            }
        }
    }

    fn share(&self, cell: usize) -> f64 {
        self.graph.operations[cell / self.shape.row()].share
    }

    /// The replica for which a collective waited beside this operation.
    fn crowded_by(&self, cell: usize) -> Option<usize> {
        self.crowded_by.get(cell).copied().flatten()
    }

    /// Gives operations beside which a collective waited for one of these replicas the typical time of those
    /// beside which none waited.
    pub(crate) fn uncrowd(&self, durations: &mut Durations, is_repaired: &dyn Fn(usize) -> bool) {
        let row = self.shape.row();
        for members in self.classes() {
            let cells = || members.iter().flat_map(|&index| index * row..(index + 1) * row);
            let mine: Vec<_> = cells()
                .filter(|&cell| {
                    let is_waiting = !is_repaired(cell % row % self.shape.replicas);
                    is_waiting && self.crowded_by(cell).is_some_and(is_repaired)
                })
                .collect();
            let free = cells().filter(|&cell| self.crowded_by(cell).is_none());
            let free: Vec<f64> = free.map(|cell| self.actual.own[cell]).collect();
            if !mine.is_empty() && !free.is_empty() {
                let typical = median(free);
                for cell in mine {
                    durations.own[cell] = durations.own[cell].min(typical);
                }
            }
        }
    }

    /// The operations of each class.
    fn classes(&self) -> Vec<Vec<Index>> {
        let mut classes: Vec<Vec<Index>> = Vec::new();
        for (index, operation) in self.graph.operations.iter().enumerate() {
            if classes.len() <= operation.class {
                classes.resize(operation.class + 1, Vec::new());
            }
            classes[operation.class].push(index);
        }
        classes.retain(|members| !members.is_empty());
        classes
    }
}

/// Indices of the durations that are replaced, and of those that replace them.
#[derive(Clone, Copy)]
struct Cells<'a> {
    mine: &'a [usize],
    theirs: &'a [usize],
}

/// Durations are compared per share of the work.
fn map_quantiles(new: &mut [f64], actual: &[f64], share: &dyn Fn(usize) -> f64, cells: Cells<'_>) {
    let whole = |cell: usize| actual[cell] / share(cell);
    let mut pool: Vec<f64> = cells.theirs.iter().map(|&cell| whole(cell)).collect();
    pool.sort_unstable_by(f64::total_cmp);
    let mut ordered: Vec<usize> = cells.mine.to_vec();
    ordered.sort_by(|&one, &other| whole(one).total_cmp(&whole(other)));
    let scale = pool.len() as f64 / ordered.len() as f64;
    for (rank, &cell) in ordered.iter().enumerate() {
        let at = ((rank as f64 + 0.5) * scale - 0.5).clamp(0.0, (pool.len() - 1) as f64);
        let (below, part) = (at.floor() as usize, at.fract());
        let above = (below + 1).min(pool.len() - 1);
        new[cell] = (pool[below] + (pool[above] - pool[below]) * part) * share(cell);
    }
}

/// The median, or the mean of the two middle values.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    if values.is_empty() {
        return 0.0;
    }
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_batches_is_kept_and_their_times_are_those_of_others() {
        let actual = [4.0, 2.0, 8.0, 3.0, 1.0, 2.0];
        let mut new = actual;
        let whole = |_| 1.0;
        let cells = |mine, theirs| Cells { mine, theirs };
        map_quantiles(&mut new, &actual, &whole, cells(&[0, 1, 2], &[3, 4, 5]));
        assert_eq!(new, [2.0, 1.0, 3.0, 3.0, 1.0, 2.0]);
        // If there are more values than durations, it interpolates; if there are fewer, it repeats each
        // value.
        map_quantiles(&mut new, &actual, &whole, cells(&[0], &[3, 4, 5]));
        assert_eq!(new[0], 2.0);
        map_quantiles(&mut new, &actual, &whole, cells(&[0, 1, 2], &[3]));
        assert_eq!(new[..3], [3.0; 3]);
        // A half is compared with the half of a whole.
        map_quantiles(&mut new, &actual, &|cell| if cell == 0 { 0.5 } else { 1.0 }, cells(&[0], &[2]));
        assert_eq!(new[0], 4.0);
    }

    #[test]
    fn the_median_of_an_even_number_is_between_two() {
        assert_eq!(median(vec![9.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![9.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
