//! The time that each worker spent in each function on the critical path, and the function's rate, once the
//! times of all ranks are known: they show which part of each collective was a wait.

use std::collections::{BTreeMap, HashMap};

use xpu_wire::{
    frame::{CollectiveTime, FunctionCollectives, FunctionKey, FunctionTime, RankFunctions, Tracing},
    id::{CommunicatorId, Rank, Sequence},
    sampling::Rate,
};

use super::{
    function::{Known, Numbered, Unit},
    local,
};
use crate::capture::Per;

/// All executions of one function on one worker.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Spent {
    pub critical_ns: f64,
    /// Time of all executions, including time shared with others.
    pub total_ns: f64,
    pub executions: u64,
    unit: Option<Unit>,
    /// Sums over the executions with a rate: time, amount, and amount² / time.
    rated_ns: f64,
    amount: f64,
    squares: f64,
    rated: u64,
}

impl Spent {
    fn of(time: &FunctionTime) -> Self {
        Self {
            critical_ns: time.critical,
            total_ns: time.total,
            executions: time.executions,
            unit: time.key.unit(),
            rated_ns: time.rated_for,
            amount: time.amount,
            squares: time.squares,
            rated: time.rated,
        }
    }

    /// Mean and standard deviation of the rate, weighted by time.
    pub(super) fn rate(&self) -> Option<(f64, f64)> {
        let unit = self.unit.filter(|_| self.rated_ns > 0.0)?;
        let mean = self.amount / self.rated_ns;
        let variance = (self.squares / self.rated_ns - mean * mean).max(0.0);
        Some((unit.of(mean), unit.of(variance.sqrt())))
    }

    /// Mean time of one execution.
    pub(super) fn mean_ns(&self) -> Option<f64> {
        (self.rated > 0).then(|| self.rated_ns / self.rated as f64)
    }
}

/// The kinds of data that were recorded for a worker. Only workers with equal kinds can be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Recorded {
    pub kernels: bool,
    samples: bool,
    functions: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub rank: Rank,
    /// The time of all steps.
    whole_ns: u64,
    /// The time of one step, or of one second.
    pub path_ns: u64,
    pub steps: usize,
    pub recorded: Recorded,
    pub samples: u64,
    pub functions: BTreeMap<usize, Spent>,
}

impl Profile {
    pub(super) fn share(&self, spent: &Spent) -> f64 {
        spent.critical_ns / (self.whole_ns as f64).max(1.0)
    }

    /// Share of all its time, including time off the critical path.
    pub(super) fn total(&self, spent: &Spent) -> f64 {
        spent.total_ns / (self.whole_ns as f64).max(1.0)
    }

    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, f64)> {
        self.functions.iter().map(|(&function, spent)| (function, self.share(spent)))
    }
}

/// The time of each collective without waits: the shortest of its ranks, because the last one waits for no
/// other.
#[derive(Default)]
struct Transfers<'a> {
    /// With the number of ranks that were in it.
    shortest: HashMap<(CommunicatorId, Sequence), (u64, usize)>,
    /// Of a period, collectives at its ends lack ranks, and it is not known which rank was the last.
    complete: Option<HashMap<CommunicatorId, usize>>,
    /// The rate at which every rank has a communicator's collectives of one function.
    rates: HashMap<(CommunicatorId, Option<&'a FunctionKey>), Rate>,
}

impl<'a> Transfers<'a> {
    fn of(all: &'a [RankFunctions], per: Per) -> Self {
        let mut new = Self::default();
        let groups = all.iter().flat_map(|of| of.collectives.iter().map(move |group| (of, group)));
        for (of, group) in groups {
            let rate = new.rates.entry((group.communicator, key(of, group))).or_insert(group.rate);
            *rate = group.rate.max(*rate);
            for one in &group.each {
                let known = new.shortest.entry((group.communicator, one.sequence)).or_insert((u64::MAX, 0));
                *known = (known.0.min(one.took.0), known.1 + 1);
            }
        }
        new.complete = (per == Per::Second).then(|| {
            let mut most: HashMap<CommunicatorId, usize> = HashMap::new();
            for (&(communicator, _), &(_, ranks)) in &new.shortest {
                let most = most.entry(communicator).or_default();
                *most = ranks.max(*most);
            }
            most
        });
        new
    }

    fn transfer(&self, communicator: CommunicatorId, sequence: Sequence) -> Option<u64> {
        let &(shortest, ranks) = self.shortest.get(&(communicator, sequence))?;
        let is_complete = self.complete.as_ref().is_none_or(|most| most.get(&communicator) == Some(&ranks));
        is_complete.then_some(shortest)
    }
}

/// The function of a group. Its number differs between ranks.
fn key<'a>(of: &'a RankFunctions, group: &FunctionCollectives) -> Option<&'a FunctionKey> {
    of.functions.get(group.function as usize).map(|time| &time.key)
}

/// The functions of all ranks, and the time that each rank spent in them.
pub(super) fn of(all: &[RankFunctions], per: Per) -> (Vec<Known>, Vec<Profile>) {
    let transfers = Transfers::of(all, per);
    let mut numbered = Numbered::default();
    let recorded = all.iter().filter(|of| of.steps > 0);
    let profiles = recorded.map(|of| profile(of, &transfers, per, &mut numbered)).collect();
    (numbered.known, profiles)
}

fn profile(of: &RankFunctions, transfers: &Transfers<'_>, per: Per, numbered: &mut Numbered) -> Profile {
    let numbers: Vec<_> = of.functions.iter().map(|time| numbered.number(time)).collect();
    let mut times = of.functions.clone();
    for group in &of.collectives {
        let rate = transfers.rates.get(&(group.communicator, key(of, group))).copied().unwrap_or_default();
        split(group, rate, transfers, &mut times);
    }
    let mut functions: BTreeMap<usize, Spent> = BTreeMap::new();
    for (number, time) in numbers.into_iter().zip(&times) {
        if time.executions > 0 || time.total > 0.0 {
            functions.insert(number, Spent::of(time));
        }
    }
    let whole_ns = of.whole.0;
    let path_ns = match per {
        Per::Step => whole_ns / u64::from(of.steps).max(1),
        Per::Second => 1_000_000_000,
    };
    let recorded = Recorded {
        kernels: matches!(of.account.activity, Tracing::Recorded { records, .. } if records > 0),
        samples: of.samples > 0,
        functions: matches!(of.account.functions, Tracing::Recorded { .. }),
    };
    Profile {
        rank: of.rank,
        whole_ns,
        path_ns,
        steps: of.steps as usize,
        recorded,
        samples: of.samples,
        functions,
    }
}

/// Divides the time of collectives into transfers and waits, by those that every rank has at this rate.
fn split(group: &FunctionCollectives, rate: Rate, transfers: &Transfers<'_>, times: &mut [FunctionTime]) {
    let kept = || group.each.iter().filter(|one| rate.times(one.sequence.0));
    let transfer = |one: &CollectiveTime| transfers.transfer(group.communicator, one.sequence);
    let sum = |part: fn(&CollectiveTime) -> f64| kept().map(part).sum::<f64>();
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let moved = kept().map(|one| transfer(one).map_or(0.0, |transfer| of_transfer(one, transfer))).sum();
    let critical = group.critical * share(moved, sum(|one| one.critical.0 as f64));
    let moved = kept().map(|one| transfer(one).unwrap_or(0).min(one.took.0) as f64).sum();
    let total = group.total * share(moved, sum(|one| one.took.0 as f64));
    if let Some(its) = times.get_mut(group.function as usize) {
        its.critical += critical;
        its.total += total;
        kept().for_each(|one| local::rate(its, transfer(one), one.bus_bytes as f64));
    }
    if let Some(waits) = times.get_mut(group.waits as usize) {
        waits.critical += group.critical - critical;
        waits.total += group.total - total;
    }
}

/// The time on the critical path of the transfer, which is at the end of a collective. If the path left it
/// in between, its time there is spread evenly.
fn of_transfer(of: &CollectiveTime, transfer: u64) -> f64 {
    let (begun, ended) = (of.begun_before.0, of.ended_before.0);
    let length = begun.saturating_sub(ended);
    if length == 0 {
        return 0.0;
    }
    of.critical.0 as f64 * transfer.saturating_sub(ended).min(length) as f64 / length as f64
}
