//! Sampled stacks that have arrived, and the ranks whose stacks are complete.

use std::collections::BTreeMap;

use xpu_model::figure;
use xpu_wire::{
    frame::{Body, Frame, SampleAccount},
    id::Rank,
};

#[derive(Debug, Default)]
pub(super) struct Samples {
    /// The number of the capture.
    number: u64,
    ranks: BTreeMap<Rank, Of>,
}

#[derive(Debug, Default)]
struct Of {
    parts: u32,
    /// The number of parts, once the last one has come.
    expected: Option<u32>,
    account: Option<SampleAccount>,
}

impl Of {
    fn is_whole(&self) -> bool {
        self.expected.is_some_and(|expected| self.parts >= expected)
    }

    fn why(&self) -> Option<String> {
        let why = self.account.as_ref().and_then(|account| account.why.clone());
        why.or_else(|| (!self.is_whole()).then(|| "a part did not arrive in time".to_owned()))
    }
}

impl Samples {
    pub(super) fn of(number: u64) -> Self {
        Self { number, ranks: BTreeMap::new() }
    }

    pub(super) fn take(&mut self, frame: &Frame) {
        match &frame.body {
            Body::PythonSamples(part) if part.number == self.number => {
                let of = self.ranks.entry(part.rank).or_default();
                of.parts += 1;
                if let Some(account) = &part.account {
                    (of.expected, of.account) = (Some(part.part + 1), Some(account.clone()));
                }
            }
            // Its collector has the samples.
            Body::Functions(sent) if sent.number == self.number => {
                let why = (sent.samples == 0).then(|| "none was read in its steps".to_owned());
                let account = Some(SampleAccount { why, ..SampleAccount::default() });
                self.ranks.insert(sent.rank, Of { parts: 1, expected: Some(1), account });
            }
            _ => {}
        }
    }

    /// Whether the frame belongs in the file.
    pub(super) fn keeps(&self, frame: &Frame) -> bool {
        !matches!(&frame.body, Body::PythonSamples(part) if part.number != self.number)
    }

    pub(super) fn are_whole(&self, mut ranks: impl Iterator<Item = Rank>) -> bool {
        ranks.all(|rank| self.ranks.get(&rank).is_some_and(Of::is_whole))
    }

    /// Ranks without some or all samples, grouped by reason.
    pub(super) fn complaints(&self, ranks: impl Iterator<Item = Rank>) -> Vec<String> {
        let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for rank in ranks {
            let why = match self.ranks.get(&rank) {
                Some(of) => of.why(),
                None => Some("its host sent none: its collector is older, or unreachable".to_owned()),
            };
            if let Some(why) = why {
                all.entry(why).or_default().push(rank.process().0.into());
            }
        }
        all.into_iter()
            .map(|(why, ranks)| {
                let word = if ranks.len() == 1 { "rank" } else { "ranks" };
                format!("{word} {} without all sampled stacks: {why}", figure::runs(&ranks))
            })
            .collect()
    }
}
