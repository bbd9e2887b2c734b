//! Sentences about where ranks were while their GPUs were idle.

use std::collections::BTreeMap;

use xpu_model::figure::runs;

use super::{
    Idle, PythonRank, PythonReport,
    place::{Place, shown},
};

/// Smallest number of samples in gaps, and their smallest share of all samples, for a sentence about them.
pub(super) const ENOUGH: u64 = 20;
const WORTH: f64 = 0.01;

/// Smallest share of the gaps with which a place is named.
const NOTABLE: f64 = 0.2;

impl PythonReport {
    /// `rank 3 was in collate_fn (data.py:40) during 62 % of the GPU's idle time (41 % of the time)`; ranks
    /// at the same place are named together.
    pub fn sentences(&self) -> Vec<String> {
        let mut places: BTreeMap<(&Place, bool), Vec<(&PythonRank, &Idle)>> = BTreeMap::new();
        for rank in &self.ranks {
            let is_notable =
                |idle: &&Idle| idle.samples >= ENOUGH && idle.gap_share.is_some_and(|gap| gap >= WORTH);
            if let Some(idle) = rank.idle.as_ref().filter(is_notable).filter(|idle| idle.share >= NOTABLE) {
                places.entry((&idle.place, idle.all_kernels)).or_default().push((rank, idle));
            }
        }
        let mut all: Vec<_> = places.into_iter().collect();
        let cost = |(_, ranks): &(_, Vec<(&PythonRank, &Idle)>)| {
            ranks.iter().map(|(_, idle)| idle.share * idle.gap_ns as f64).fold(0.0, f64::max)
        };
        all.sort_by(|a, b| cost(b).total_cmp(&cost(a)));
        let sentence = |((place, all_kernels), ranks): ((&Place, bool), Vec<(&PythonRank, &Idle)>)| {
            let percent = |share: f64| format!("{:.0}", share * 100.0);
            let least = ranks.iter().map(|(_, idle)| idle.share).fold(f64::MAX, f64::min);
            let most = ranks.iter().map(|(_, idle)| idle.share).fold(0.0, f64::max);
            let share = match (percent(least), percent(most)) {
                (least, most) if least == most => least,
                (least, most) => format!("{least} to {most}"),
            };
            let numbers: Vec<_> = ranks.iter().map(|(rank, _)| u64::from(rank.rank.process().0)).collect();
            let (noun, was) = if numbers.len() == 1 { ("rank", "was") } else { ("ranks", "were") };
            let idle = if all_kernels { "the GPU's idle time" } else { "the GPU's gaps" };
            let gaps = ranks.iter().filter_map(|(_, idle)| idle.gap_share).fold(0.0, f64::max);
            format!(
                "{noun} {} {was} in {} during {share} % of {idle} ({} % of the time)",
                runs(&numbers),
                shown(&place.function, &place.file, place.line),
                percent(gaps),
            )
        };
        all.into_iter().map(sentence).chain(self.without_gpu()).collect()
    }

    /// If no GPU time is known: where ranks were during the whole time.
    fn without_gpu(&self) -> Vec<String> {
        let is_notable =
            |rank: &&PythonRank| rank.idle.is_none() && rank.samples >= ENOUGH && rank.share >= NOTABLE;
        let mut places: BTreeMap<&Place, Vec<&PythonRank>> = BTreeMap::new();
        for rank in self.ranks.iter().filter(is_notable) {
            if let Some(place) = &rank.place {
                places.entry(place).or_default().push(rank);
            }
        }
        let sentence = |(place, ranks): (&Place, Vec<&PythonRank>)| {
            let numbers: Vec<_> = ranks.iter().map(|rank| u64::from(rank.rank.process().0)).collect();
            let (noun, was) = if numbers.len() == 1 { ("rank", "was") } else { ("ranks", "were") };
            let least = ranks.iter().map(|rank| rank.share).fold(f64::MAX, f64::min);
            let least_of = if numbers.len() == 1 { "" } else { "at least " };
            format!(
                "{noun} {} {was} in {} in {least_of}{:.0} % of the time",
                runs(&numbers),
                shown(&place.function, &place.file, place.line),
                least * 100.0
            )
        };
        places.into_iter().map(sentence).collect()
    }
}
