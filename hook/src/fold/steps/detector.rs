//! Which sequence of operations shows the steps: the collectives of the widest communicators, or without any the products.

use std::hash::{DefaultHasher, Hasher as _};

use xpu_shared::{collective::Operation, gemm::GemmShape};

use super::{
    period::Op,
    rhythm::{Ended, Rhythm},
};

/// Sizes of communicators whose operations are followed, those of one size together.
const SIZES: usize = 4;

/// Launching threads whose products are told apart.
const LANES: usize = 64;

/// Operations that wait to be put in order; those of one gathering, mostly few.
const WAITING: usize = 65_536;

/// A repetition is told of when it has lasted for so long, in nanoseconds: what repeats within a step does not.
const LASTS: u64 = 2_000_000_000;

#[derive(Debug)]
pub(super) struct Detector {
    /// Products launched by each lane so far.
    products: [u64; LANES],
    /// Operations since the last [`Self::settle`]: of several threads, and not in order.
    waiting: Vec<Waiting>,
    sizes: Vec<Followed>,
    alone: Alone,
}

/// An operation of NCCL, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) operation: Operation,
    pub(crate) bytes: u64,
    /// Ranks of its communicator.
    pub(crate) size: u32,
    /// When it was launched, in monotonic nanoseconds.
    pub(crate) at: u64,
}

/// The launch of a graph, which is one operation whatever it holds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Launched {
    pub(crate) graph: u32,
    /// A hash of what it holds.
    pub(crate) signature: u32,
    /// Ranks of the widest communicator it has a collective of; 0 without any.
    pub(crate) size: u32,
    /// As of a [`Call`].
    pub(crate) at: u64,
}

#[derive(Clone, Copy, Debug)]
struct Waiting {
    name: u32,
    size: u32,
    at: u64,
    lane: usize,
    /// Products of that lane before it.
    products: u64,
}

/// The operations of all communicators of one size.
#[derive(Debug)]
struct Followed {
    size: u32,
    rhythm: Rhythm,
    /// Products of each lane before its last operation.
    products: [u64; LANES],
    lasting: Lasting,
}

/// How long a repetition has been there.
#[derive(Debug, Default)]
struct Lasting {
    /// Its number, and when it was first seen.
    candidate: Option<(u64, u64)>,
    /// The period that may be told of.
    told: Option<usize>,
}

impl Lasting {
    /// Whether the steps of what repeats now may be told of.
    fn takes(&mut self, rhythm: &mut Rhythm, at: u64) -> bool {
        let Some(period) = rhythm.period() else { return false };
        let since = match self.candidate {
            Some((known, since)) if known == rhythm.repetition() => since,
            _ => {
                self.candidate = Some((rhythm.repetition(), at));
                at
            }
        };
        if at.saturating_sub(since) >= LASTS && self.told != Some(period) {
            self.told = Some(period);
            rhythm.trust();
        }
        self.told == Some(period)
    }
}

/// A job without collectives: the products and graphs of the first thread that launched one. Products carry no time of their
/// own; those launched between two gatherings are taken to have been launched evenly.
#[derive(Debug, Default)]
struct Alone {
    lane: Option<usize>,
    /// What was launched, and when if that is known.
    names: Vec<(u32, Option<u64>)>,
    rhythm: Option<Rhythm>,
    lasting: Lasting,
    settled: u64,
}

impl Default for Detector {
    fn default() -> Self {
        Self { products: [0; LANES], waiting: Vec::new(), sizes: Vec::new(), alone: Alone::default() }
    }
}

impl Detector {
    pub(super) fn product(&mut self, lane: usize, shape: &GemmShape) {
        let lane = lane % LANES;
        self.products[lane] += 1;
        if self.sizes.is_empty() {
            self.alone.launched(lane, name(shape), None);
        }
    }

    pub(super) fn call(&mut self, lane: usize, Call { operation, bytes, size, at }: Call) {
        self.wait(lane % LANES, name(&(operation as u8, bytes)), size, at);
    }

    /// One with collectives is like a collective, another like a product.
    pub(super) fn graph(&mut self, lane: usize, Launched { graph, signature, size, at }: Launched) {
        let (lane, name) = (lane % LANES, name(&(graph, signature)));
        if size > 0 {
            return self.wait(lane, name, size, at);
        }
        self.products[lane] += 1;
        if self.sizes.is_empty() {
            self.alone.launched(lane, name, Some(at));
        }
    }

    fn wait(&mut self, lane: usize, name: u32, size: u32, at: u64) {
        if self.waiting.len() < WAITING && self.waiting.try_reserve(1).is_ok() {
            self.waiting.push(Waiting { name, size, at, lane, products: self.products[lane] });
        }
    }

    /// Everything launched before `until` is known. Gives the last step that ended, and tells how long each was.
    pub(super) fn settle(&mut self, until: u64, mut took: impl FnMut(u64)) -> Option<(u64, u64)> {
        self.waiting.sort_by_key(|waiting| waiting.at);
        let known = self.waiting.partition_point(|waiting| waiting.at < until);
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut last = None;
        for one in waiting.drain(..known) {
            let Some(index) = self.followed(one.size) else { continue };
            let followed = &mut self.sizes[index];
            let Some(ended) = followed.take(&one) else { continue };
            if self.shows(index) {
                ended.took.into_iter().for_each(&mut took);
                last = Some((ended.completed, ended.at));
            }
        }
        self.waiting = waiting;
        if self.sizes.is_empty() { self.alone.settle(until, took) } else { last }
    }

    /// The place of a size, which it is given if there is room. The first operation of NCCL ends the following of products.
    fn followed(&mut self, size: u32) -> Option<usize> {
        let known = self.sizes.iter().position(|followed| followed.size == size);
        if known.is_some() || self.sizes.len() == SIZES {
            return known;
        }
        let rhythm = Rhythm::new()?;
        self.alone = Alone::default();
        self.sizes.push(Followed { size, rhythm, products: self.products, lasting: Lasting::default() });
        Some(self.sizes.len() - 1)
    }

    /// Whether this size's steps are the ones to tell of: the widest communicators', because most ranks see the same of them.
    /// A single operation that repeats is a weak sign, and gives way to any sequence.
    fn shows(&self, index: usize) -> bool {
        let worth = |followed: &Followed| {
            let period = followed.rhythm.period().filter(|&period| followed.lasting.told == Some(period))?;
            Some((period > 1, followed.size))
        };
        let best = self.sizes.iter().filter_map(worth).max();
        best.is_some() && worth(&self.sizes[index]) == best
    }

    /// Bytes held, about.
    pub(super) fn memory(&self) -> usize {
        let rhythms = self.sizes.iter().map(|followed| &followed.rhythm).chain(&self.alone.rhythm);
        rhythms.map(Rhythm::memory).sum::<usize>()
            + self.waiting.capacity() * size_of::<Waiting>()
            + self.sizes.capacity() * size_of::<Followed>()
    }
}

impl Followed {
    fn take(&mut self, one: &Waiting) -> Option<Ended> {
        let before = std::mem::replace(&mut self.products[one.lane], one.products);
        let gemms = u32::try_from(one.products.saturating_sub(before)).unwrap_or(u32::MAX);
        let ended = self.rhythm.take(Op { gemms, name: one.name }, one.at)?;
        self.lasting.takes(&mut self.rhythm, one.at).then_some(ended)
    }
}

impl Alone {
    fn launched(&mut self, lane: usize, name: u32, at: Option<u64>) {
        if *self.lane.get_or_insert(lane) == lane
            && self.names.len() < WAITING
            && self.names.try_reserve(1).is_ok()
        {
            self.names.push((name, at));
        }
    }

    fn settle(&mut self, until: u64, mut took: impl FnMut(u64)) -> Option<(u64, u64)> {
        let from = std::mem::replace(&mut self.settled, until);
        let count = self.names.len() as u64;
        if count > 0 && self.rhythm.is_none() {
            self.rhythm = Rhythm::new();
        }
        let rhythm = self.rhythm.as_mut()?;
        let (mut last, mut latest) = (None, 0);
        for (index, (name, known)) in self.names.drain(..).enumerate() {
            let evenly = from + until.saturating_sub(from) * (index as u64 + 1) / count;
            let at = known.unwrap_or(evenly).max(latest);
            latest = at;
            let Some(ended) = rhythm.take(Op { gemms: 0, name }, at) else { continue };
            if self.lasting.takes(rhythm, at) {
                ended.took.into_iter().for_each(&mut took);
                last = Some((ended.completed, ended.at));
            }
        }
        last
    }
}

fn name(of: &impl std::hash::Hash) -> u32 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish() as u32
}
