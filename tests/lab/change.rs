//! Changes a simulated job midway. A simulation is fixed from its start, so this carries the totals over to
//! the changed job.

use std::collections::HashMap;

use xpu_wire::{
    frame::{Body, Frame, RankDigest},
    id::{Rank, Sequence, Step},
    unit::Nanoseconds,
};

/// What is added to each rank's totals since the last change.
#[derive(Default, Debug)]
pub(crate) struct Change {
    added: HashMap<Rank, Added>,
}

#[derive(Debug)]
struct Added {
    steps: u64,
    timed_flops: f64,
    timed_for: u64,
    flops: f64,
    collectives: u64,
}

fn ranks(frames: &[Frame]) -> impl Iterator<Item = &RankDigest> {
    frames
        .iter()
        .filter_map(|frame| if let Body::Digest(digest) = &frame.body { Some(&digest.ranks) } else { None })
        .flatten()
}

impl Change {
    /// The difference between the last reported totals and the changed job's totals for the same second.
    ///
    /// # Panics
    /// If the job became faster: its totals would have to decrease.
    pub(crate) fn between(before: &[Frame], after: &[Frame]) -> Self {
        let difference =
            |before: u64, after: u64| before.checked_sub(after).expect("a job only becomes slower");
        let steps = |digest: &RankDigest| digest.step.unwrap_or_default().0;
        let added = ranks(before).zip(ranks(after)).map(|(before, after)| {
            let added = Added {
                steps: difference(steps(before), steps(after)),
                timed_flops: before.gemm_timed_flops - after.gemm_timed_flops,
                timed_for: before.gemm_timed_for.0.wrapping_sub(after.gemm_timed_for.0),
                flops: before.gemm_flops - after.gemm_flops,
                collectives: difference(before.launches.collectives, after.launches.collectives),
            };
            (before.rank, added)
        });
        Self { added: added.collect() }
    }

    pub(crate) fn apply(&self, frames: &mut [Frame]) {
        for frame in frames {
            let Body::Digest(digest) = &mut frame.body else { continue };
            for digest in &mut digest.ranks {
                if let Some(added) = self.added.get(&digest.rank) {
                    added.to(digest);
                }
            }
        }
    }
}

impl Added {
    fn to(&self, digest: &mut RankDigest) {
        digest.step = digest.step.map(|step| Step(step.0 + self.steps));
        digest.gemm_timed_flops += self.timed_flops;
        digest.gemm_timed_for = Nanoseconds(digest.gemm_timed_for.0.wrapping_add(self.timed_for));
        digest.gemm_flops += self.flops;
        digest.launches.collectives += self.collectives;
        for communicator in &mut digest.communicators {
            communicator.entered += self.collectives;
            communicator.enqueued += self.collectives;
            communicator.completed += self.collectives;
        }
        for sample in &mut digest.samples {
            sample.sequence = Sequence(sample.sequence.0 + self.collectives);
        }
    }
}
