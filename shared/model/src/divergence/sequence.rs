//! The collectives of one rank in one communicator, by their numbers.

use std::collections::{BTreeMap, BTreeSet};

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{CallSite, CallState, RankRecord, RecordedCall, RecordedCommunicator},
    id::Rank,
};

/// Number of collectives in graphs that are distinguished. A communicator with more is not examined.
const MOST: usize = 1 << 16;

#[derive(Clone, Debug)]
pub(super) struct Sequence<'a> {
    pub record: &'a RankRecord,
    pub place: u16,
    /// The number of the first call.
    pub first: u64,
    /// Calls by number. A call is missing if the record was written while it was read.
    calls: Vec<Option<&'a RecordedCall>>,
}

/// The values that must be equal on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Signature {
    pub operation: Operation,
    pub bytes: u64,
    pub datatype: DataType,
    pub reduction: Option<u8>,
    pub root: Option<u32>,
    replays: u32,
}

impl Signature {
    pub(super) fn of(call: &RecordedCall) -> Self {
        let RecordedCall { operation, bytes, datatype, reduction, peer: root, replays, .. } = *call;
        Self { operation, bytes, datatype, reduction, root, replays }
    }
}

/// The sequences of one rank. A communicator is left out if the record has lost some of its calls.
pub(super) fn of(record: &RankRecord) -> Vec<Sequence<'_>> {
    let mut of: BTreeMap<u16, BTreeMap<u64, &RecordedCall>> = BTreeMap::new();
    for call in record.calls.iter().filter(|call| call.operation.is_collective()) {
        let counts = !matches!(call.state, CallState::Refused | CallState::Captured);
        let Some(number) = call.number.filter(|_| counts) else { continue };
        let known = of.entry(call.communicator).or_default();
        for number in number..number.saturating_add(u64::from(call.replays.max(1))) {
            if known.len() < MOST {
                // A refused call's number is used again.
                known.insert(number, call);
            }
        }
    }
    let whole = record.made as usize <= record.calls.len();
    let all = (0..).zip(&record.communicators);
    all.filter_map(|(place, communicator)| {
        let Some(known) = of.get(&place).filter(|known| known.len() < MOST) else {
            // A communicator that was created but not used yet.
            let new = whole && !communicator.closed && communicator.size > 1;
            return new.then(|| Sequence { record, place, first: 0, calls: Vec::new() });
        };
        let (&first, &last) = (known.first_key_value()?.0, known.last_key_value()?.0);
        let span = usize::try_from(last - first).ok().filter(|&span| span < MOST)?;
        let calls = (0..=span as u64).map(|at| known.get(&(first + at)).copied()).collect();
        Some(Sequence { record, place, first, calls })
    })
    .filter(|sequence| sequence.communicator().size != 1)
    .collect()
}

impl<'a> Sequence<'a> {
    pub(super) fn rank(&self) -> Rank {
        self.record.rank
    }

    pub(super) fn communicator(&self) -> &'a RecordedCommunicator {
        &self.record.communicators[usize::from(self.place)]
    }

    /// The number after the last.
    pub(super) fn end(&self) -> u64 {
        self.first + self.calls.len() as u64
    }

    pub(super) fn at(&self, number: u64) -> Option<&'a RecordedCall> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.calls.get(place).copied().flatten()
    }

    pub(super) fn signature(&self, number: u64) -> Option<Signature> {
        self.at(number).map(Signature::of)
    }

    fn call_site(&self, number: u64) -> Option<&'a CallSite> {
        self.record.site(self.at(number)?)
    }

    /// The call's site as text: the program's own frame, or the native code outside of Python.
    pub(super) fn site(&self, number: u64) -> Option<String> {
        self.call_site(number)?.place()
    }

    /// Whether both calls came from the same site; `None` if that is unknown.
    pub(super) fn is_from_site_of(&self, number: u64, other: &Self, there: u64) -> Option<bool> {
        self.call_site(number)?.is_same_as(other.call_site(there)?)
    }

    /// Whether the other's record would show the call's site if the other had called from there. It cannot
    /// show native sites of another build of a library.
    pub(super) fn is_comparable_with(&self, number: u64, other: &Self) -> bool {
        let natives = |of: &Self| of.record.sites.iter().map(|site| site.native.as_str());
        let natives_of_other: BTreeSet<_> = natives(other).filter(|native| !native.is_empty()).collect();
        self.call_site(number).is_some_and(|site| site.frame().is_some())
            || natives(self).any(|native| natives_of_other.contains(native))
    }

    /// Whether it made such a call from such a site before this number.
    pub(super) fn called_before(&self, number: u64, signature: Signature, site: Option<&str>) -> bool {
        (self.first..number.min(self.end())).any(|before| {
            self.signature(before) == Some(signature)
                && (site.is_none() || self.site(before).as_deref() == site)
        })
    }

    /// Whether the call repeats what followed the same calls before; `None` without an example.
    pub(super) fn is_usual(&self, number: u64) -> Option<bool> {
        let before = |number: u64| -> Option<[Signature; 3]> {
            let at = |back: u64| self.signature(number.checked_sub(back)?);
            Some([at(1)?, at(2)?, at(3)?])
        };
        let context = before(number)?;
        let last = (self.first..number).rev().find(|&earlier| before(earlier) == Some(context))?;
        Some(self.signature(last) == self.signature(number))
    }

    /// The number of an earlier call that followed the same calls as those up to `number`: a call like it usually
    /// comes next. `None` without an example.
    fn usual_next(&self, number: u64) -> Option<u64> {
        let up_to = |number: u64| -> Option<[Signature; 3]> {
            let at = |back: u64| self.signature(number.checked_sub(back)?);
            Some([at(0)?, at(1)?, at(2)?])
        };
        let context = up_to(number)?;
        let last = (self.first..number).rev().find(|&earlier| up_to(earlier) == Some(context))?;
        Some(last + 1)
    }

    /// Whether its calls from `number` on are those that usually follow the other's call of this number, on which
    /// the other still waits.
    pub(super) fn skips(&self, number: u64, other: &Self) -> bool {
        let waits = other.end() == number + 1;
        let Some(next) = other.usual_next(number).filter(|_| waits) else { return false };
        self.continues_as(number, other, next, 1) && self.is_from_site_of(number, other, next) != Some(false)
    }

    /// Whether its calls from number `from` on equal the other's from `there` on, up to the end of the
    /// shorter sequence, which must have at least `least` calls.
    pub(super) fn continues_as(&self, from: u64, other: &Self, there: u64, least: u64) -> bool {
        let both = self.end().saturating_sub(from).min(other.end().saturating_sub(there));
        both >= least && (0..both).all(|at| alike(self.signature(from + at), other.signature(there + at)))
    }

    /// Same as [`Self::continues_as`], for the call sites, if both are known.
    pub(super) fn has_same_sites(&self, from: u64, other: &Self, there: u64) -> bool {
        let both = self.end().saturating_sub(from).min(other.end().saturating_sub(there));
        both > 0 && (0..both).all(|at| self.is_from_site_of(from + at, other, there + at) != Some(false))
    }
}

fn alike<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
    one.is_none() || other.is_none() || one == other
}

/// Ranks in order, each once.
pub(super) fn ranks(of: &[&Sequence<'_>]) -> Vec<Rank> {
    let mut ranks: Vec<_> = of.iter().map(|one| one.rank()).collect();
    ranks.sort_unstable();
    ranks.dedup();
    ranks
}
