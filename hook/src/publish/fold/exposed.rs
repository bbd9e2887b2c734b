//! Exposed communication: how long it held up GEMMs, estimated from a sample.

use std::{collections::VecDeque, sync::atomic::Ordering::Relaxed};

use xpu_wire::{sampling::Rate, unit::Nanoseconds};

use super::Fold;
use crate::{
    observe::observer::Observer,
    publish::rate::{self, Class},
};

/// Waits that represent the untimed ones: some rounds of them, half a minute.
const RECENT: usize = 512;

/// If some waits are always pending, this many that were read are enough.
const ENOUGH: u64 = 32;

#[derive(Debug, Default)]
pub(super) struct Exposed {
    /// Nanoseconds: measured, and represented by the measured ones.
    held: f64,
    /// The last timed waits, and their total time.
    recent: VecDeque<u64>,
    sum: u64,
    /// Waits chosen for timing, those read, and those read at the last count of the others.
    chosen: u64,
    read: u64,
    read_then: u64,
    /// Number of untimed waits that `held` includes.
    represented: u64,
}

impl Exposed {
    /// A collective on the stream of the GEMMs: it counts as often as its sampling rate says, if it was
    /// sampled.
    pub(super) fn communicated(
        &mut self,
        observer: &Observer,
        duration: Nanoseconds,
        chosen_by: Option<Rate>,
    ) {
        let Some(rate) = chosen_by else { return };
        self.held += own(observer, duration) as f64 * rate.denominator() as f64;
    }

    pub(super) fn choose(&mut self) {
        self.chosen += 1;
    }

    /// A timed wait.
    pub(super) fn waited(&mut self, observer: &Observer, duration: Nanoseconds) {
        let own = own(observer, duration);
        self.held += own as f64;
        if self.recent.len() >= RECENT {
            self.sum -= self.recent.pop_front().unwrap_or(0);
        }
        self.recent.push_back(own);
        self.sum += own;
        self.read += 1;
    }

    /// A timing that failed.
    pub(super) fn failed(&mut self) {
        self.read += 1;
    }

    /// Takes the number of waits so far; each untimed wait counts as long as the recent ones. Done only when
    /// a whole round was read, because otherwise its first waits would represent all since the previous
    /// round.
    pub(super) fn settle(&mut self, waits: u64) {
        let is_whole = self.read >= self.chosen || self.read - self.read_then >= ENOUGH;
        if self.recent.is_empty() || !is_whole {
            return;
        }
        self.read_then = self.read;
        // Some may have been chosen since they were counted: never less than before.
        let others = waits.saturating_sub(self.chosen).max(self.represented);
        let mean = self.sum as f64 / self.recent.len() as f64;
        self.held += (others - self.represented) as f64 * mean;
        self.represented = others;
    }
}

/// A wait for something already done takes as long as an empty pair of events.
fn own(observer: &Observer, duration: Nanoseconds) -> u64 {
    duration.0.saturating_sub(observer.overhead.event_gap.load(Relaxed))
}

impl Fold {
    /// Since the process began. `None` if unknown: neither GEMMs nor communication were seen yet, some of it
    /// is in graphs, or nothing is timed.
    pub(crate) fn exposed_for(&self, observer: &Observer) -> Option<Nanoseconds> {
        let classes = [Class::Wait, Class::Collective, Class::PointToPoint];
        let timed = classes.iter().all(|&class| rate::of(class) != Rate::NEVER);
        let replayed = observer.lanes().any(|lane| {
            let replayed = &lane.counters.replayed;
            replayed.collectives.get() + replayed.point_to_point.get() > 0
        });
        let held = Nanoseconds(self.exposed.held as u64);
        (timed && !replayed && observer.exposure.is_known()).then_some(held)
    }
}
