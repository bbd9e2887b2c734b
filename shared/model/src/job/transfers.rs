//! Transfer rates of each communicator over minutes, from which slow links are found.

use std::collections::{BTreeMap, VecDeque};

use xpu_wire::{
    collective::Operation,
    frame::CommunicatorState,
    id::CommunicatorId,
    sampling,
    unit::{Moment, Nanoseconds},
};

use super::{Join, Sample, median, rank::push_bounded};

/// Length of one window; and the number of windows kept: two minutes.
const WINDOW: u64 = 2_000_000_000;
const REMEMBERED: usize = 60;

/// Number of old windows that are merged into one, and number of merged ones kept: twenty minutes. A link that
/// became slow some minutes ago is still compared with its bandwidth before that.
const MERGED: usize = 5;
const MERGED_REMEMBERED: usize = 120;

/// Rates kept per window.
const RATES: usize = 32;

/// Communicators and sizes kept.
const TRACKS: usize = 16_384;

/// Smaller messages spend more time waiting than transferring.
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
    /// When the open window began, and the last rate came.
    began: Moment,
    last: Moment,
    rates: Vec<f64>,
    closed: VecDeque<Window>,
    merged: VecDeque<Window>,
}

/// The median bandwidth of some seconds with timed collectives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    pub began: Moment,
    pub gb_s: f64,
    /// How many windows of two seconds it covers.
    pub weight: f64,
}

impl Track {
    fn take(&mut self, rate: f64, at: Moment) {
        if at.0 >= self.began.0.saturating_add(WINDOW) && !self.rates.is_empty() {
            let rates = std::mem::take(&mut self.rates);
            if let Some(gb_s) = median(rates) {
                self.close(Window { began: self.began, gb_s, weight: 1.0 });
            }
            self.began = at;
        }
        if self.rates.is_empty() {
            self.began = at;
        }
        self.last = at;
        if self.rates.len() < RATES {
            self.rates.push(rate);
        }
    }

    fn close(&mut self, window: Window) {
        if self.closed.len() == REMEMBERED {
            let old: Vec<_> = self.closed.drain(..MERGED).collect();
            let gb_s = median(old.iter().map(|window| window.gb_s).collect());
            if let Some((first, gb_s)) = old.first().zip(gb_s) {
                let merged = Window { gb_s, weight: MERGED as f64, ..*first };
                push_bounded(&mut self.merged, merged, MERGED_REMEMBERED);
            }
        }
        push_bounded(&mut self.closed, window, REMEMBERED);
    }

    /// The windows, newest first: two minutes in windows of two seconds, before them in windows of ten.
    pub fn windows(&self) -> impl Iterator<Item = &Window> {
        self.closed.iter().rev().chain(self.merged.iter().rev())
    }

    /// When its last collective was timed.
    pub fn last(&self) -> Moment {
        self.last
    }
}

/// The rates of all communicators of a job.
#[derive(Debug, Default)]
pub struct Transfers {
    tracks: BTreeMap<(CommunicatorId, Traffic), Track>,
    /// The routes of messages between two ranks.
    routes: BTreeMap<CommunicatorId, Route>,
}

/// Messages from one rank of a communicator to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub communicator: CommunicatorId,
    /// The two ranks, by their numbers in the communicator.
    pub from: u32,
    pub to: u32,
}

impl Route {
    pub(super) fn of(state: &CommunicatorState, operation: Operation, peer: u32) -> Self {
        let (from, to) = if operation == Operation::Send { (state.rank, peer) } else { (peer, state.rank) };
        Self { communicator: state.id, from, to }
    }

    /// An id for the two ranks, used in the place of a communicator's id.
    pub(super) fn participants(&self) -> CommunicatorId {
        let ends = u64::from(self.from) << 32 | u64::from(self.to);
        CommunicatorId(sampling::priority(self.communicator.0 ^ sampling::priority(!ends)))
    }
}

impl Transfers {
    /// Takes a collective that all its ranks have reported, or a message that both ends have.
    pub(super) fn take(&mut self, sample: &Sample, route: Option<Route>, join: &Join, at: Moment) {
        if sample.bus_bytes < LEAST_BYTES || join.transfer() == Nanoseconds(0) {
            return;
        }
        let (_, size) = join.seen();
        let magnitude = ((sample.bus_bytes as f64).log2() * 2.0).round() as u8;
        // Either end may report last.
        let operation = if route.is_some() { Operation::SendRecv } else { sample.operation };
        let key = (sample.participants, Traffic { operation, magnitude, size });
        if self.tracks.len() < TRACKS || self.tracks.contains_key(&key) {
            let rate = sample.bus_bytes as f64 / join.transfer().0 as f64;
            self.tracks.entry(key).or_default().take(rate, at);
            if let Some(route) = route {
                self.routes.insert(sample.participants, route);
            }
        }
    }

    /// The two ranks that such an id represents; `None` for a communicator.
    pub fn route(&self, participants: CommunicatorId) -> Option<&Route> {
        self.routes.get(&participants)
    }

    pub fn routes(&self) -> impl Iterator<Item = (CommunicatorId, &Route)> {
        self.routes.iter().map(|(&participants, route)| (participants, route))
    }

    pub fn tracks(&self) -> impl Iterator<Item = (CommunicatorId, Traffic, &Track)> {
        self.tracks.iter().map(|(&(id, traffic), track)| (id, traffic, track))
    }
}
