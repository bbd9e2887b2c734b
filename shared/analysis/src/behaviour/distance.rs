//! The differential distance of a worker: that of its vector of a function from those of its peers.

use xpu_model::job::median;

use super::Vector;

/// Largest number of peers with which each worker is compared.
const PEERS: usize = 100;

/// Smallest distance that counts as a difference: a tenth of the largest share or rate.
const LEAST: f64 = 0.1;

/// A worker differs from its peers if its distance is this many times that of the median worker.
const TIMES: f64 = 5.0;

/// Smallest number of workers with a majority. With fewer, the distance alone decides.
const MAJORITY: usize = 3;

/// The vectors of one function on workers of one role.
pub(super) struct Cohort<'a> {
    vectors: Vec<&'a Vector>,
    most_share: f64,
    most_rate: f64,
    /// The workers with which all others are compared.
    sample: Vec<usize>,
}

/// A worker's distance, and whether it is so large that the worker differs from its peers.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Apart {
    pub distance: f64,
    pub is_unlike: bool,
}

impl<'a> Cohort<'a> {
    pub(super) fn new(vectors: Vec<&'a Vector>) -> Self {
        let most = |each: fn(&Vector) -> f64| vectors.iter().map(|vector| each(vector)).fold(0.0, f64::max);
        let (most_share, most_rate) =
            (most(|vector| vector.share), most(|vector| vector.rate.unwrap_or(0.0)));
        let mut sample: Vec<_> = (0..vectors.len()).collect();
        // Neighbours share a host, so a fixed shuffle takes workers of all hosts.
        sample.sort_by_key(|&worker| shuffled(worker as u64));
        sample.truncate(PEERS + 1);
        Self { vectors, most_share, most_rate, sample }
    }

    /// The Manhattan distance of two vectors, each part as a share of its largest value.
    fn between(&self, one: &Vector, other: &Vector) -> f64 {
        let part = |a: f64, b: f64, most: f64| if most > 0.0 { (a - b).abs() / most } else { 0.0 };
        let rated =
            |a: Option<f64>, b: Option<f64>| a.zip(b).map_or(0.0, |(a, b)| part(a, b, self.most_rate));
        part(one.share, other.share, self.most_share)
            + rated(one.rate, other.rate)
            + rated(one.variation, other.variation)
    }

    /// The median distance over the sampled peers. Of two middle values, the lower one is taken, so that two
    /// equal workers of three have a small distance.
    fn distance(&self, worker: usize) -> f64 {
        let peers = self.sample.iter().filter(|&&peer| peer != worker).take(PEERS);
        let mut all: Vec<_> =
            peers.map(|&peer| self.between(self.vectors[worker], self.vectors[peer])).collect();
        if all.is_empty() {
            return 0.0;
        }
        let middle = (all.len() - 1) / 2;
        *all.select_nth_unstable_by(middle, f64::total_cmp).1
    }

    /// For each worker in order.
    pub(super) fn apart(&self) -> Vec<Apart> {
        let distances: Vec<_> = (0..self.vectors.len()).map(|worker| self.distance(worker)).collect();
        let usual = median(distances.clone()).filter(|_| distances.len() >= MAJORITY).unwrap_or(0.0);
        let limit = LEAST.max(TIMES * usual);
        distances.into_iter().map(|distance| Apart { distance, is_unlike: distance > limit }).collect()
    }

    /// The median of a part over the worker's peers.
    pub(super) fn of_peers(&self, worker: usize, part: impl Fn(&Vector) -> Option<f64>) -> Option<f64> {
        let peers = self.sample.iter().filter(|&&peer| peer != worker).take(PEERS);
        median(peers.filter_map(|&peer| part(self.vectors[peer])).collect())
    }
}

/// The generator `SplitMix64`.
fn shuffled(number: u64) -> u64 {
    let mut state = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unlike(shares: &[f64]) -> Vec<usize> {
        let vectors: Vec<_> = shares
            .iter()
            .map(|&share| Vector {
                function: 0,
                share,
                total: share,
                executions: 9,
                rate: None,
                variation: None,
            })
            .collect();
        let apart = Cohort::new(vectors.iter().collect()).apart();
        (0..apart.len()).filter(|&worker| apart[worker].is_unlike).collect()
    }

    #[test]
    fn a_minority_is_unlike_the_rest_and_of_two_halves_neither_is() {
        assert_eq!(unlike(&[0.02, 0.021, 0.02, 0.31, 0.019, 0.02]), [3]);
        assert_eq!(unlike(&[0.02, 0.3, 0.31, 0.02, 0.021, 0.02, 0.019, 0.02]), [1, 2]);
        assert_eq!(unlike(&[0.02, 0.3, 0.02, 0.3]), [0_usize; 0]);
        assert_eq!(unlike(&[0.3, 0.31, 0.29, 0.305]), [0_usize; 0]);
        assert_eq!(unlike(&[0.02, 0.3, 0.02]), [1]);
        assert_eq!(unlike(&[0.2, 0.3]), [0, 1], "two have no majority");
        assert_eq!(unlike(&[0.2, 0.21]), [0_usize; 0]);
        assert_eq!(unlike(&[0.2]), [0_usize; 0]);
    }

    #[test]
    fn variation_on_all_workers_makes_none_of_them_abnormal() {
        let shares: Vec<_> = (0..32).map(|worker| 0.1 + f64::from(worker) * 0.01).collect();
        assert_eq!(unlike(&shares), [0_usize; 0]);
    }
}
