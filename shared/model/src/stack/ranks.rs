//! Sets of ranks, written as `0-5,7`.

use std::{
    collections::BTreeSet,
    fmt::{self, Write as _},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use xpu_wire::id::Rank;

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ranks(BTreeSet<Rank>);

impl Ranks {
    pub fn insert(&mut self, rank: Rank) {
        self.0.insert(rank);
    }

    pub fn contains(&self, rank: Rank) -> bool {
        self.0.contains(&rank)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn first(&self) -> Option<Rank> {
        self.0.first().copied()
    }

    /// The ranks of this set that are not in the other.
    pub fn without(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).copied().collect())
    }

    pub fn iter(&self) -> impl Iterator<Item = Rank> {
        self.0.iter().copied()
    }

    /// First and last of each run.
    fn runs(&self) -> Vec<(Rank, Rank)> {
        let mut runs: Vec<(Rank, Rank)> = Vec::new();
        for rank in self.iter() {
            match runs.last_mut() {
                Some((_, last)) if rank.follows(*last) => *last = rank,
                _ => runs.push((rank, rank)),
            }
        }
        runs
    }

    /// `rank 6`, `ranks 0-5,7`, in at most `runs` runs.
    pub fn named(&self, runs: usize) -> String {
        format!("{} {}", if self.len() == 1 { "rank" } else { "ranks" }, self.brief(runs))
    }

    /// At most `runs` runs, followed by the number of ranks, so that ten thousand ranks fit on a line.
    pub fn brief(&self, runs: usize) -> String {
        let all = self.runs();
        let mut text = String::new();
        write_runs(&mut text, &all[..all.len().min(runs)]);
        if all.len() > runs {
            // Writing to a String cannot fail.
            let _ = write!(text, ",… ({} ranks)", self.len());
        }
        text
    }
}

fn write_runs(to: &mut String, runs: &[(Rank, Rank)]) {
    for (index, (first, last)) in runs.iter().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        let _ = match last.0 - first.0 {
            0 => write!(to, "{comma}{first}"),
            _ => write!(to, "{comma}{first}-{last}"),
        };
    }
}

impl fmt::Display for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::new();
        write_runs(&mut text, &self.runs());
        f.pad(&text)
    }
}

impl FromIterator<Rank> for Ranks {
    fn from_iter<I: IntoIterator<Item = Rank>>(ranks: I) -> Self {
        Self(ranks.into_iter().collect())
    }
}

impl Serialize for Ranks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Ranks {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        let mut ranks = Self::default();
        for run in text.split(',').filter(|run| !run.is_empty()) {
            let rank = |text: &str| text.parse::<Rank>().map_err(D::Error::custom);
            match run.split_once('-') {
                Some((first, last)) => ranks.0.extend((rank(first)?.0..=rank(last)?.0).map(Rank)),
                None => _ = ranks.0.insert(rank(run)?),
            }
        }
        Ok(ranks)
    }
}

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, StrDeserializer};

    use super::*;

    fn ranks(numbers: &[u32]) -> Ranks {
        numbers.iter().copied().map(Rank).collect()
    }

    #[test]
    fn runs_are_folded() {
        assert_eq!(ranks(&[7, 0, 1, 2, 3, 4, 5]).to_string(), "0-5,7");
        let gpus = [0, 1].map(|gpu| Rank(5).of_gpu(xpu_wire::id::DeviceIndex(gpu)));
        assert_eq!([Rank(3), Rank(4)].into_iter().chain(gpus).collect::<Ranks>().to_string(), "3-4,5.0,5.1");
        assert_eq!(ranks(&[]).to_string(), "");
    }

    #[test]
    fn printed_ranks_can_be_parsed() {
        let read = |text: &str| Ranks::deserialize(StrDeserializer::<Error>::new(text));
        let gpu: Ranks = [Rank(5).of_gpu(xpu_wire::id::DeviceIndex(1))].into_iter().collect();
        for set in [ranks(&[7, 0, 1, 2]), ranks(&[]), ranks(&[3]), gpu] {
            assert_eq!(read(&set.to_string()).unwrap(), set);
        }
        assert!(read("1-x").is_err());
    }

    #[test]
    fn many_runs_are_cut_and_counted() {
        let spread: Vec<_> = (0..5000).map(|n| 2 * n + 1).collect();
        assert_eq!(ranks(&spread).brief(3), "1,3,5,… (5000 ranks)");
        assert_eq!(ranks(&[1, 3, 4]).brief(2), "1,3-4");
        assert_eq!([ranks(&[6]).named(2), ranks(&[1, 3, 4]).named(2)], ["rank 6", "ranks 1,3-4"]);
    }
}
