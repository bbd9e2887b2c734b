//! Transfer rates of each communicator over minutes: the input of slow links.

use std::collections::{BTreeMap, VecDeque};

use xpu_wire::{
    collective::Operation,
    id::CommunicatorId,
    unit::{Moment, Nanoseconds},
};

use super::{Join, Sample, median, rank::push_bounded};

/// One window, and the number kept: two minutes.
const WINDOW: u64 = 2_000_000_000;
const REMEMBERED: usize = 60;

/// Rates kept per window.
const RATES: usize = 32;

/// Communicators and sizes kept.
const TRACKS: usize = 16_384;

/// Smaller messages wait longer than they transfer.
const LEAST_BYTES: u64 = 1 << 20;

/// Comparable collectives of one communicator: the same operation of about the same bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Traffic {
    pub operation: Operation,
    /// Twice the logarithm of its bytes on the bus.
    pub magnitude: u8,
    pub size: u32,
}

/// Bus bandwidth in GB/s of one kind of traffic of one communicator.
#[derive(Debug, Default)]
pub struct Track {
    began: Moment,
    rates: Vec<f64>,
    closed: VecDeque<f64>,
}

impl Track {
    fn take(&mut self, rate: f64, at: Moment) {
        if at.0 >= self.began.0.saturating_add(WINDOW) && !self.rates.is_empty() {
            let rates = std::mem::take(&mut self.rates);
            if let Some(rate) = median(rates) {
                push_bounded(&mut self.closed, rate, REMEMBERED);
            }
            self.began = at;
        }
        if self.rates.is_empty() {
            self.began = at;
        }
        if self.rates.len() < RATES {
            self.rates.push(rate);
        }
    }

    /// The median of each window of two seconds with timed ones, newest first.
    pub fn windows(&self) -> impl ExactSizeIterator<Item = f64> {
        self.closed.iter().rev().copied()
    }
}

/// Of all communicators of a job.
#[derive(Debug, Default)]
pub struct Transfers {
    tracks: BTreeMap<(CommunicatorId, Traffic), Track>,
}

impl Transfers {
    /// Takes a collective that all its ranks have reported.
    pub(super) fn take(&mut self, sample: &Sample, join: &Join, at: Moment) {
        if sample.bus_bytes < LEAST_BYTES || join.transfer() == Nanoseconds(0) {
            return;
        }
        let (_, size) = join.seen();
        let magnitude = ((sample.bus_bytes as f64).log2() * 2.0).round() as u8;
        let key = (sample.communicator, Traffic { operation: sample.operation, magnitude, size });
        if self.tracks.len() < TRACKS || self.tracks.contains_key(&key) {
            let rate = sample.bus_bytes as f64 / join.transfer().0 as f64;
            self.tracks.entry(key).or_default().take(rate, at);
        }
    }

    pub fn tracks(&self) -> impl Iterator<Item = (CommunicatorId, Traffic, &Track)> {
        self.tracks.iter().map(|(&(id, traffic), track)| (id, traffic, track))
    }
}
