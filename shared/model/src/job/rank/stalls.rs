//! The time that a rank waited in its collectives before it continued, as for a checkpoint or an evaluation.
//! The next wait may take as long.

use std::{cmp::Reverse, collections::VecDeque, time::Duration};

use xpu_wire::{collective::Operation, frame::RankDigest, id::CommunicatorId};

use super::push_bounded;

/// Shortest pause that is kept, number of pauses that are kept, and number of steps that must be done before.
const STALL: Duration = Duration::from_secs(3);
const REMEMBERED: usize = 16;
const WARM: u64 = 3;

/// Longest wait that is expected after a single pause, which may have been a debugger; and after two pauses.
const ONCE: Duration = Duration::from_secs(40);
const TWICE: Duration = Duration::from_mins(5);

#[derive(Debug, Default)]
pub(super) struct Stalls {
    known: VecDeque<(CommunicatorId, Option<Operation>, Duration)>,
}

impl Stalls {
    /// Notes the operations that the rank waited in, if it paused for `stalled` before this digest and
    /// continues now.
    pub(super) fn take(&mut self, before: Option<&RankDigest>, digest: &RankDigest, stalled: Duration) {
        let Some(before) = before.filter(|_| stalled >= STALL) else { return };
        // The first steps compile, so they do not predict later ones.
        let warm = digest.step.is_none_or(|step| step.0 > WARM);
        if warm && before.communicators != digest.communicators {
            let waited = before.communicators.iter().filter(|state| state.completed < state.entered);
            for state in waited {
                push_bounded(&mut self.known, (state.id, state.last_operation, stalled), REMEMBERED);
            }
        }
    }

    /// The expected wait in such an operation of this communicator.
    pub(super) fn usual(&self, id: CommunicatorId, operation: Option<Operation>) -> Duration {
        let alike = self.known.iter().filter(|stall| (stall.0, stall.1) == (id, operation));
        let mut longest_first: Vec<_> = alike.map(|&(.., stalled)| stalled).collect();
        longest_first.sort_unstable_by_key(|&stalled| Reverse(stalled));
        let of = |nth: usize, most: Duration| {
            longest_first.get(nth).map_or(Duration::ZERO, |stalled| (*stalled).min(most))
        };
        of(0, ONCE).max(of(1, TWICE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_stall_excuses_less_than_repeated_ones() {
        let id = CommunicatorId(1);
        let of = |seconds: &[u64]| {
            let known = seconds.iter().map(|&seconds| (id, None, Duration::from_secs(seconds)));
            Stalls { known: known.collect() }.usual(id, None).as_secs()
        };
        assert_eq!(
            [of(&[]), of(&[20]), of(&[600]), of(&[100, 600]), of(&[600, 600, 3])],
            [0, 20, 40, 100, 300]
        );
        assert_eq!(Stalls::default().usual(CommunicatorId(2), None), Duration::ZERO);
    }
}
