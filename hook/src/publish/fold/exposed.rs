//! Exposed communication: for how long communication blocked GEMMs, estimated from a sample.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::c_int,
    sync::atomic::Ordering::Relaxed,
};

use xpu_wire::{id::DeviceIndex, sampling::Rate, unit::Nanoseconds};

use super::Fold;
use crate::{
    observe::observer::Observer,
    publish::rate::{self, Class},
};

/// Number of timed waits that represent the untimed ones: some rounds, about half a minute.
const RECENT: usize = 512;

/// The untimed waits are added after this many read waits at the latest, even if others are still pending.
const ENOUGH: u64 = 32;

#[derive(Debug, Default)]
pub(super) struct Exposed {
    /// By device: nanoseconds of measured waits, and of the waits that they represent.
    held: BTreeMap<Option<c_int>, Held>,
    /// The last timed waits, and their total time.
    recent: VecDeque<u64>,
    sum: u64,
    /// Number of waits selected for timing, of those read, and of those read when the untimed ones were last
    /// counted.
    chosen: u64,
    read: u64,
    read_then: u64,
    /// Number of untimed waits that `held` includes.
    represented: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Held {
    all: f64,
    /// The part in timed waits.
    timed: f64,
}

impl Exposed {
    /// Adds a collective on the stream of the GEMMs. A sampled one represents as many as its sampling rate
    /// implies.
    pub(super) fn communicated(
        &mut self,
        observer: &Observer,
        device: Option<c_int>,
        duration: Nanoseconds,
        chosen_by: Option<Rate>,
    ) {
        let Some(rate) = chosen_by else { return };
        let time = own(observer, duration) as f64 * rate.denominator() as f64;
        self.held.entry(device).or_default().all += time;
    }

    pub(super) fn choose(&mut self) {
        self.chosen += 1;
    }

    /// Adds a timed wait.
    pub(super) fn waited(&mut self, observer: &Observer, device: Option<c_int>, duration: Nanoseconds) {
        let own = own(observer, duration);
        let held = self.held.entry(device).or_default();
        (held.all, held.timed) = (held.all + own as f64, held.timed + own as f64);
        if self.recent.len() >= RECENT {
            self.sum -= self.recent.pop_front().unwrap_or(0);
        }
        self.recent.push_back(own);
        self.sum += own;
        self.read += 1;
    }

    /// Counts a wait whose timing failed.
    pub(super) fn failed(&mut self) {
        self.read += 1;
    }

    /// Takes the number of waits so far, and adds the untimed ones: each counts with the mean of the recent
    /// ones, on all devices in proportion to their timed waits. Done only when a whole round was read; otherwise
    /// the round's first waits would represent all waits since the previous round.
    pub(super) fn settle(&mut self, waits: u64) {
        let is_whole = self.read >= self.chosen || self.read - self.read_then >= ENOUGH;
        if self.recent.is_empty() || !is_whole {
            return;
        }
        self.read_then = self.read;
        // Some waits may have been selected since the waits were counted, so the number must not decrease.
        let others = waits.saturating_sub(self.chosen).max(self.represented);
        let mean = self.sum as f64 / self.recent.len() as f64;
        let untimed = (others - self.represented) as f64 * mean;
        self.represented = others;
        let timed: f64 = self.held.values().map(|held| held.timed).sum();
        if timed > 0.0 {
            self.held.values_mut().for_each(|held| held.all += untimed * held.timed / timed);
        }
    }
}

/// The wait's duration without that of an empty pair of events, which a wait for completed work takes.
fn own(observer: &Observer, duration: Nanoseconds) -> u64 {
    duration.0.saturating_sub(observer.overhead.event_gap.load(Relaxed))
}

impl Fold {
    /// Exposed communication since the process began. `None` if it is unknown: GEMMs or communication were
    /// not seen yet, some of them are in graphs, or nothing is timed.
    pub(crate) fn exposed_for(&self, observer: &Observer) -> Option<Nanoseconds> {
        self.exposed_where(observer, |_| true)
    }

    /// Same as [`Fold::exposed_for`], on one GPU, as in [`crate::gpu::gpus::Gpus::beside_home`].
    pub(crate) fn exposed_on(&self, observer: &Observer, gpu: Option<DeviceIndex>) -> Option<Nanoseconds> {
        self.exposed_where(observer, |device| observer.gpus.beside_home(device) == gpu)
    }

    fn exposed_where(
        &self,
        observer: &Observer,
        is_there: impl Fn(Option<c_int>) -> bool,
    ) -> Option<Nanoseconds> {
        let classes = [Class::Wait, Class::Collective, Class::PointToPoint];
        let timed = classes.iter().all(|&class| rate::of(class) != Rate::NEVER);
        let replayed = observer.lanes().any(|lane| {
            let replayed = &lane.counters.replayed;
            replayed.collectives.get() + replayed.point_to_point.get() > 0
        });
        let held = self.exposed.held.iter().filter(|&(&device, _)| is_there(device));
        let held: f64 = held.map(|(_, held)| held.all).sum();
        (timed && !replayed && observer.exposure.is_known()).then_some(Nanoseconds(held as u64))
    }
}
