//! The launches of a process in order. The period of the process's steps is searched for in this log.
//!
//! Every launch is added to running sums, so that a subtraction suffices to compare two segments of the log.
//! For rare names, single launches are kept; for frequent ones (a kernel that every layer launches), only the
//! first launch after a pause.

use std::collections::{HashMap, VecDeque, hash_map::Entry};

use xpu_wire::sampling::priority;

use crate::observe::launches::{Kind, Launch};

/// Maximum number of launches kept one by one: 0.6 MiB.
const KEPT: usize = 8192;

/// Number of latest launches kept, without copies: 0.3 MiB.
const RECENT: usize = 8192;

/// A name with fewer launches shows no repetition yet.
const FEW: usize = 8;

/// A gap between two launches of a name is a pause if it is more than this many times the median gap.
const PAUSE: u32 = 8;

/// Running sums over the launches before a point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Sums {
    /// Number of launches.
    pub(super) count: u32,
    /// The wrapping sum of their names, which are hashes.
    pub(super) names: u64,
    /// Number of GEMMs among the launches.
    pub(super) gemms: u32,
}

impl Sums {
    /// The sums between two points.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self {
            count: self.count.wrapping_sub(earlier.count),
            names: self.names.wrapping_sub(earlier.names),
            gemms: self.gemms.wrapping_sub(earlier.gemms),
        }
    }

    /// Whether these sums are a multiple of others.
    pub(super) fn is_several(self, of: Self) -> bool {
        let times = self.count / of.count.max(1);
        times > 1 && self.count == of.count * times && self.names == of.names.wrapping_mul(times.into())
    }
}

/// A kept launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Event {
    pub(super) launch: Launch,
    /// Its name at launch; a launch of a frequent name is kept under another name.
    pub(super) original: u32,
    /// Sums over all launches before it.
    pub(super) before: Sums,
    /// Number of threads of all kernels before it.
    pub(super) threads: f64,
}

/// A frequent name.
#[derive(Clone, Copy, Debug)]
struct Frequent {
    /// The usual number of launches from one to the next.
    apart: u32,
    last: u32,
}

impl Frequent {
    /// Whether a launch at `now` follows a pause.
    fn begins(&mut self, now: u32) -> bool {
        let gap = now.wrapping_sub(self.last);
        self.last = now;
        gap > PAUSE * self.apart
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    events: Vec<Event>,
    recent: VecDeque<Launch>,
    frequent: HashMap<u32, Frequent>,
    sums: Sums,
    threads: f64,
    /// Whether there were launches before the first one pushed.
    is_cut: bool,
}

impl Log {
    /// A log that does not have the first launches.
    pub(super) fn cut() -> Self {
        Self { is_cut: true, ..Self::default() }
    }

    /// Adds the next launch. `false` if there is no memory for it.
    pub(super) fn push(&mut self, launch: Launch) -> bool {
        if self.events.len() == KEPT {
            self.thin();
        }
        if let Some(name) = self.kept_as(launch.name, launch.kind) {
            if self.events.try_reserve(1).is_err() {
                return false;
            }
            let original = launch.name;
            let launch = Launch { name, ..launch };
            self.events.push(Event { launch, original, before: self.sums, threads: self.threads });
        }
        if launch.kind == Kind::Copy {
            return true;
        }
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        if self.recent.try_reserve(1).is_err() {
            return false;
        }
        self.recent.push_back(launch);
        self.sums.count = self.sums.count.wrapping_add(1);
        self.sums.names = self.sums.names.wrapping_add(priority(launch.name.into()));
        match launch.kind {
            Kind::Gemm => self.sums.gemms = self.sums.gemms.wrapping_add(1),
            Kind::Kernel => self.threads += launch.weight as f64,
            Kind::Collective | Kind::Graph | Kind::Copy => {}
        }
        true
    }

    /// The name under which a launch is kept; `None` if it is not kept. A copy after a pause does not count,
    /// because the data loader caused the pause.
    fn kept_as(&mut self, mut name: u32, kind: Kind) -> Option<u32> {
        while let Some(frequent) = self.frequent.get_mut(&name) {
            if kind == Kind::Copy || !frequent.begins(self.sums.count) {
                return None;
            }
            name = after_a_pause(name);
        }
        Some(name)
    }

    /// Drops single launches of the most frequent names, until half of the space is free.
    fn thin(&mut self) {
        let mut places: HashMap<u32, Vec<u32>> = HashMap::new();
        for event in &self.events {
            places.entry(event.launch.name).or_default().push(event.before.count);
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort_unstable_by_key(|(name, places)| (std::cmp::Reverse(places.len()), *name));
        let mut left = self.events.len();
        for (name, places) in places {
            if left <= KEPT / 2 || places.len() < FEW {
                break;
            }
            left -= places.len();
            let mut gaps: Vec<_> = places.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
            gaps.sort_unstable();
            self.frequent.insert(name, Frequent { apart: gaps[gaps.len() / 2].max(1), last: places[0] });
        }
        let before = std::mem::take(&mut self.events);
        for mut event in before {
            if let Entry::Occupied(mut frequent) = self.frequent.entry(event.launch.name) {
                let begins = frequent.get_mut().begins(event.before.count);
                if event.launch.kind == Kind::Copy || !begins {
                    continue;
                }
                event.launch.name = after_a_pause(event.launch.name);
            }
            self.events.push(event);
        }
        if self.events.len() > KEPT * 3 / 4 {
            // Nothing repeats: for example, kernels are being tuned, or weights are being loaded.
            *self = Self::cut();
        }
    }

    pub(super) fn events(&self) -> &[Event] {
        &self.events
    }

    /// The launches from one point to another, if they are recent.
    pub(super) fn recent(&self, from: Sums, to: Sums) -> Option<impl Iterator<Item = &Launch>> {
        let back = |sums: Sums| self.recent.len().checked_sub(self.sums.since(sums).count as usize);
        let (from, to) = (back(from)?, back(to)?);
        (from <= to).then(|| self.recent.range(from..to))
    }

    /// Whether single launches of some names are not kept.
    pub(super) fn is_thinned(&self) -> bool {
        !self.frequent.is_empty()
    }

    /// Whether there were launches before the log began.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// The sums over all launches so far.
    pub(super) fn sums(&self) -> Sums {
        self.sums
    }

    /// Approximate number of bytes held.
    pub(super) fn memory(&self) -> usize {
        self.events.capacity() * size_of::<Event>()
            + self.recent.capacity() * size_of::<Launch>()
            + self.frequent.capacity() * 2 * size_of::<Frequent>()
    }
}

/// The name under which the first launch of a frequent name after a pause is kept.
fn after_a_pause(name: u32) -> u32 {
    name.rotate_left(7) ^ 0x5bd1_e995
}
