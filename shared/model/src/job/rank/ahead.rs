//! How many launches a rank's host was ahead of its GPU at each of its last digests. A GPU that waits for
//! other ranks has all later launches of its host queued. A GPU that waits for its own host has nothing
//! queued.

use xpu_wire::frame::{CommunicatorState, RankDigest};

use super::intervals::WINDOW;

/// Digests kept.
pub(super) const REMEMBERED: usize = WINDOW;

/// One digest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// Collectives launched and not known to be done.
    pub queued: u32,
    /// Whether a thread was in a call that may wait for the GPU.
    pub waits: bool,
    /// Steps in the digest, and the seconds since the previous one.
    pub steps: f32,
    pub passed: f32,
}

impl Ahead {
    /// `None` if the previous one is of another process.
    pub(super) fn between(before: &RankDigest, digest: &RankDigest) -> Option<Self> {
        let steps = digest.step.zip(before.step).map_or(Some(0), |(to, from)| to.0.checked_sub(from.0))?;
        let queued = |state: &CommunicatorState| state.enqueued.saturating_sub(state.completed);
        Some(Self {
            queued: digest.communicators.iter().map(queued).sum::<u64>().try_into().unwrap_or(u32::MAX),
            waits: !digest.inside.is_empty(),
            steps: steps as f32,
            passed: digest.heard.since(before.heard).as_secs_f32(),
        })
    }
}
