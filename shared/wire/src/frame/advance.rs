//! When a rank last made progress. Collectors keep it, so that a new viewer can show since when a job hangs.

use serde::{Deserialize, Serialize};

use super::{Progress, RankDigest};
use crate::unit::{Moment, Nanoseconds};

/// Times by the clock of the rank's host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Advance {
    /// When it last completed a step, or entered or completed a collective.
    pub moved: Moment,
    /// When it last launched, allocated or freed anything, or returned from a wait for the GPU.
    pub worked: Moment,
    /// Time per step between the last digests in which steps advanced. If there is no earlier digest, the
    /// median of the timed steps. Oldest first; at most [`Progress::WINDOW`].
    pub paces: Vec<Nanoseconds>,
}

impl Advance {
    /// Takes the digest that followed `before`.
    pub fn take(&mut self, before: Option<&RankDigest>, after: &RankDigest) {
        if before.is_none_or(|before| has_moved(before, after)) {
            self.moved = after.heard;
        }
        if before.is_none_or(|before| has_worked(before, after)) {
            self.worked = after.heard;
        }
        let timed = || after.step_median.filter(|_| after.step_count > 0);
        if let Some(pace) = before.and_then(|before| pace(before, after)).or_else(timed) {
            if self.paces.len() >= Progress::WINDOW {
                self.paces.remove(0);
            }
            self.paces.push(pace);
        }
    }

    /// The median of [`Self::paces`]. Allocates nothing: it is computed for every rank once a second.
    pub fn pace(&self) -> Option<Nanoseconds> {
        let mut paces = [Nanoseconds(0); Progress::WINDOW];
        let known = self.paces.len().min(Progress::WINDOW);
        let paces = &mut paces[..known];
        paces.copy_from_slice(&self.paces[..known]);
        paces.sort_unstable();
        let (lower, upper) = (paces.get(known.checked_sub(1)? / 2)?, paces.get(known / 2)?);
        Some(Nanoseconds(lower.0.midpoint(upper.0)))
    }
}

/// Time per step between the two digests.
fn pace(before: &RankDigest, after: &RankDigest) -> Option<Nanoseconds> {
    let steps = after.step?.0.checked_sub(before.step?.0)?;
    let elapsed = after.step_at.0.checked_sub(before.step_at.0)?;
    elapsed.checked_div(steps).map(Nanoseconds)
}

/// Whether, between the two digests, a step was completed, or a collective was entered or completed.
fn has_moved(before: &RankDigest, after: &RankDigest) -> bool {
    let counts = |digest: &RankDigest| -> Vec<_> {
        let mut counts: Vec<_> = digest
            .communicators
            .iter()
            .map(|state| (state.id, state.rank, state.entered, state.enqueued, state.completed))
            .collect();
        counts.sort_unstable();
        counts
    };
    before.step != after.step || counts(before) != counts(after)
}

/// Whether anything was launched, allocated or freed, or a wait for the GPU ended. A rank that writes a
/// checkpoint launches nothing, but waits for one copy after the other.
fn has_worked(before: &RankDigest, after: &RankDigest) -> bool {
    let counts = |digest: &RankDigest| (digest.launches, digest.blocked_for, digest.memory_held);
    counts(before) != counts(after)
}
