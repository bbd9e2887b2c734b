//! The clocks of the hosts, aligned by collectives: a collective ends on every rank at nearly the same time,
//! once the last rank has been served.

use std::collections::{BTreeMap, HashMap};

use xpu_wire::{
    collective::Operation,
    id::{HostName, Rank},
    unit::{Moment, Nanoseconds},
};

use super::Capture;

/// Offsets between the hosts' clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clocks {
    /// Nanoseconds to add to a host's times to get those of the first host. A host without shared collectives
    /// is missing.
    offsets: BTreeMap<HostName, i64>,
    /// After alignment, the distance from the median within which nineteen of twenty ends of collectives lie;
    /// `None` without collectives.
    pub residual: Option<Nanoseconds>,
    /// Collectives that ended on several ranks.
    pub matched: usize,
}

/// Whether no rank ends in this operation before all have entered.
pub(crate) fn ends_together(operation: Operation) -> bool {
    use Operation::{AllGather, AllReduce, AlltoAll, Fused, ReduceScatter};
    matches!(operation, AllReduce | AllGather | ReduceScatter | AlltoAll | Fused)
}

impl Clocks {
    pub fn of(capture: &Capture) -> Self {
        let mut ends: HashMap<_, Vec<(Rank, Moment)>> = HashMap::new();
        for (rank, single) in capture.operations() {
            if let (Some(of), Some((_, end))) = (single.collective_id(), single.on_gpu())
                && ends_together(of.operation)
            {
                ends.entry((of.communicator, of.sequence)).or_default().push((rank, end));
            }
        }
        ends.retain(|_, ends| ends.len() > 1);
        let host = |rank| capture.ranks.get(&rank).map(|of| &of.host);
        let offsets = offsets_of(&ends.values().map(|ends| middle_by_host(ends, host)).collect::<Vec<_>>());
        let first = capture.ranks.values().map(|of| &of.host).next();
        let mut new = Self { offsets, residual: None, matched: ends.len() };
        // A host without shared collectives keeps its own time; so does a single host.
        if let Some(first) = first.filter(|_| new.offsets.is_empty()) {
            new.offsets.insert(first.clone(), 0);
        }
        let mut off: Vec<u64> = Vec::new();
        for ends in ends.values() {
            let aligned: Vec<_> =
                ends.iter().filter_map(|&(rank, end)| Some(new.aligned(host(rank)?, end).0 as i64)).collect();
            let Some(middle) = median(aligned.clone()) else { continue };
            off.extend(aligned.iter().map(|end| end.abs_diff(middle)));
        }
        off.sort_unstable();
        new.residual = off.get(off.len() * 19 / 20).copied().map(Nanoseconds);
        new
    }

    /// A host's time by the clock of the first.
    pub fn aligned(&self, host: &HostName, at: Moment) -> Moment {
        Moment(at.0.saturating_add_signed(self.offset(host).unwrap_or(0)))
    }

    /// `None` if it is unknown.
    pub fn offset(&self, host: &HostName) -> Option<i64> {
        self.offsets.get(host).copied()
    }

    pub fn offsets(&self) -> impl Iterator<Item = (&HostName, i64)> {
        self.offsets.iter().map(|(host, &offset)| (host, offset))
    }
}

/// When a collective ended on each host: the median over the host's ranks.
fn middle_by_host<'a>(
    ends: &[(Rank, Moment)],
    host: impl Fn(Rank) -> Option<&'a HostName>,
) -> BTreeMap<&'a HostName, i64> {
    let mut by_host: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    for &(rank, end) in ends {
        if let Some(host) = host(rank) {
            by_host.entry(host).or_default().push(end.0 as i64);
        }
    }
    by_host.into_iter().filter_map(|(host, ends)| Some((host, median(ends)?))).collect()
}

/// Offsets from host to host: the median difference of all collectives that both have.
pub(crate) fn offsets_of(matched: &[BTreeMap<&HostName, i64>]) -> BTreeMap<HostName, i64> {
    let mut pairs: BTreeMap<(&HostName, &HostName), Vec<i64>> = BTreeMap::new();
    for ends in matched {
        // Each host is compared with the first host of a collective, so that the number of pairs does not
        // grow with the square of the number of hosts.
        let Some((&first, &theirs)) = ends.iter().next() else { continue };
        for (&host, &its) in ends.iter().skip(1) {
            pairs.entry((first, host)).or_default().push(theirs.saturating_sub(its));
        }
    }
    let differences: Vec<_> =
        pairs.into_iter().filter_map(|(pair, all)| Some((pair, median(all)?))).collect();
    let mut known: BTreeMap<HostName, i64> = BTreeMap::new();
    if let Some(first) = matched.iter().filter_map(|ends| ends.keys().next()).min() {
        known.insert((*first).clone(), 0);
    }
    loop {
        let before = known.len();
        for &((a, b), difference) in &differences {
            match (known.get(a).copied(), known.get(b).copied()) {
                (Some(of_a), None) => _ = known.insert(b.clone(), of_a.saturating_add(difference)),
                (None, Some(of_b)) => _ = known.insert(a.clone(), of_b.saturating_sub(difference)),
                _ => {}
            }
        }
        if known.len() == before {
            return known;
        }
    }
}

fn median(mut values: Vec<i64>) -> Option<i64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}
