//! When a rank last made progress, and where its threads have been since.

use std::time::Duration;

use xpu_wire::{
    frame::RankStacks,
    id::Step,
    unit::{Moment, Nanoseconds},
};

use xpu_model::finding;

use super::Worker;

/// A rank without step marks counts as training after this many collectives.
const WARM: u64 = 10;

/// After this time without progress, other ranks may be waiting for a rank.
const ABSENT: Duration = Duration::from_secs(2);

/// Readings of a rank in one hang, if they fail, and the pause between them.
const ATTEMPTS: u32 = 3;
const AGAIN: Duration = Duration::from_secs(15);

/// The progress of a rank, or of several.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RankProgress {
    /// When any of them last joined, completed a step, or entered or completed a collective.
    pub moved: Moment,
    /// Whether any of them has completed its first step.
    pub begun: bool,
    /// The longest step time.
    pub pace: Option<Nanoseconds>,
    /// Whether the hooks of all are on.
    pub enabled: bool,
}

impl RankProgress {
    pub(crate) fn join(&mut self, other: Self) {
        self.moved = self.moved.max(other.moved);
        self.begun |= other.begun;
        self.pace = self.pace.max(other.pace);
        self.enabled &= other.enabled;
    }
}

impl Worker {
    pub(crate) fn progress(&self) -> RankProgress {
        let collective = self.communicators.iter().map(|known| known.advanced).max();
        let step = self.step.map(|(_, at)| at);
        let completed = self.communicators.iter().map(|known| known.state.completed).max();
        RankProgress {
            moved: self.joined.max(collective.unwrap_or_default()).max(step.unwrap_or_default()),
            begun: match self.step {
                Some((step, _)) => step > Step(0),
                None => completed.is_some_and(|completed| completed >= WARM),
            },
            pace: self.pace,
            enabled: self.latest.hook.enabled,
        }
    }

    /// Whether the rank's progress would be visible.
    pub(crate) fn shows_progress(&self) -> bool {
        self.step.is_some() || !self.communicators.is_empty()
    }

    /// When the rank's state last changed without progress: it fell silent, died or returned.
    pub(crate) fn changed(&self) -> Moment {
        self.changed
    }

    /// Keeps only those calls that the rank's threads were inside at `looked` and have not left since. The
    /// stacks were read in between, so other calls may not match them.
    pub(crate) fn confirm(&self, stacks: &mut RankStacks, looked: Moment) {
        let now = self.ledger.as_ref().map(|page| page.ledger().read().threads).unwrap_or_default();
        for thread in &mut stacks.threads {
            thread.inside = thread.inside.filter(|before| {
                let since = looked.0.saturating_sub(before.waited.0);
                now.iter()
                    .any(|now| (now.thread, now.call, now.since.0) == (before.thread, before.call, since))
            });
        }
    }

    /// Whether the rank makes no progress, and none of its threads is inside a call.
    pub(crate) fn is_absent(&self, now: Moment) -> bool {
        let is_inside = || self.ledger.as_ref().is_some_and(|page| !page.ledger().read().threads.is_empty());
        now.since(self.progress().moved) >= ABSENT && !is_inside()
    }

    /// Whether one of its threads waits for the GPU.
    pub(crate) fn waits_for_gpu(&self) -> bool {
        let threads = self.ledger.as_ref().map(|page| page.ledger().read().threads).unwrap_or_default();
        threads.iter().any(|thread| finding::GPU_WAITS.contains(&thread.call))
    }

    /// Keeps stacks. Within one hang, stacks without native frames do not replace stacks with them. Returns
    /// whether they replace a reading of the same hang that failed.
    pub(crate) fn keep(&mut self, stacks: &RankStacks) -> bool {
        let mut replaces_failed = false;
        let moved = self.progress().moved;
        let has_more = self.kept().is_some_and(|kept| kept.is_thorough() && kept.read_at >= moved);
        if stacks.pid == self.info.pid
            && (stacks.is_thorough() || !has_more)
            && !self.kept().is_some_and(|kept| stacks.lacks_gpus_of(kept))
        {
            let is_of_same_hang = self.kept().is_some_and(|kept| kept.read_at >= moved);
            replaces_failed = is_of_same_hang && self.failed > 0 && !stacks.has_failed();
            self.failed = match (stacks.has_failed(), is_of_same_hang) {
                (true, true) => self.failed + 1,
                (true, false) => 1,
                (false, _) => 0,
            };
            self.stacks = Some(Box::new(stacks.clone()));
        }
        replaces_failed
    }

    /// Whether the last reading failed in this hang, and is tried again: a rank may be unreadable only for a
    /// moment.
    pub(crate) fn is_read_again(&self, now: Moment) -> bool {
        let moved = self.progress().moved;
        let is_due =
            self.kept().is_some_and(|kept| kept.read_at >= moved && now.since(kept.read_at) >= AGAIN);
        is_due && (1..ATTEMPTS).contains(&self.failed)
    }

    /// The last stacks of this process.
    pub(crate) fn kept(&self) -> Option<&RankStacks> {
        self.stacks.as_deref()
    }
}
