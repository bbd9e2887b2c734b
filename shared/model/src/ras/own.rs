//! xpu-top's own counts, by communicator and member.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    frame::{CallState, RankRecord},
    id::{CommunicatorId, Rank},
};

use super::{About, Statement};
use crate::{job::Job, phrase};

/// One communicator, as the ledgers and the records of its ranks show it.
#[derive(Debug, Default)]
pub(super) struct Own {
    pub id: CommunicatorId,
    pub name: String,
    pub members: BTreeMap<u32, Member>,
}

#[derive(Debug)]
pub(super) struct Member {
    pub rank: Rank,
    /// Collectives whose call has returned, of all kinds.
    pub enqueued: u64,
    calls: Option<Calls>,
}

/// The recorded launches of one member.
#[derive(Debug)]
struct Calls {
    /// From this number on, no call is missing.
    from: u64,
    launched: Vec<(u64, Operation)>,
}

pub(super) fn of(job: &Job, is_meant: impl Fn(CommunicatorId) -> bool) -> BTreeMap<CommunicatorId, Own> {
    let records: BTreeMap<_, _> = job.records().map(|record| (record.rank, record)).collect();
    let mut all: BTreeMap<CommunicatorId, Own> = BTreeMap::new();
    for (rank, view) in job.ranks() {
        let record = records.get(&rank);
        let states = view.latest().into_iter().flat_map(|digest| &digest.communicators);
        for state in states.filter(|state| is_meant(state.id)) {
            let one = all.entry(state.id).or_insert_with(|| Own { id: state.id, ..Own::default() });
            if one.name.is_empty() {
                one.name.clone_from(&state.name);
            }
            let calls = record.and_then(|record| calls(record, state.id, state.rank));
            one.members.insert(state.rank, Member { rank, enqueued: state.enqueued, calls });
        }
    }
    all
}

/// `None` if the record does not hold the communicator's last calls.
fn calls(record: &RankRecord, id: CommunicatorId, member: u32) -> Option<Calls> {
    let place = record.communicators.iter().position(|one| (one.id, one.member) == (id, member))?;
    let of_it = record.calls.iter().filter(|call| usize::from(call.communicator) == place);
    let of_it = of_it.filter(|call| call.operation.is_collective());
    let mut from = u64::MAX;
    let mut launched = Vec::new();
    for call in of_it {
        let Some(number) = call.number else { continue };
        from = from.min(number);
        // RAS counts neither what NCCL has not launched nor what is in a graph.
        let counts = !matches!(call.state, CallState::Entered | CallState::Refused | CallState::Captured);
        if counts && call.replays == 0 {
            launched.push((number, call.operation));
        }
    }
    let whole = record.made as usize <= record.calls.len();
    let from = if whole { 0 } else { from };
    (from < u64::MAX).then_some(Calls { from, launched })
}

impl Own {
    /// The number of collectives of one operation that these members have launched, counted from a number
    /// that all their records have. This shows the differences between members, not the totals. `None` if a
    /// member has no record.
    pub(super) fn launched(&self, members: &[u32], operation: Operation) -> Option<BTreeMap<u32, u64>> {
        let calls = |member: &u32| Some((*member, self.members.get(member)?.calls.as_ref()?));
        let all: Vec<_> = members.iter().map(calls).collect::<Option<_>>()?;
        let from = all.iter().map(|(_, calls)| calls.from).max()?;
        let count = |calls: &Calls| {
            calls.launched.iter().filter(|&&(number, of)| number >= from && of == operation).count() as u64
        };
        Some(all.into_iter().map(|(member, calls)| (member, count(calls))).collect())
    }

    /// All collectives of these members. `None` if a member is not watched.
    pub(super) fn enqueued(&self, members: &[u32]) -> Option<BTreeMap<u32, u64>> {
        members.iter().map(|member| Some((*member, self.members.get(member)?.enqueued))).collect()
    }

    pub(super) fn ranks(&self, members: &[u32]) -> Vec<Rank> {
        let mut ranks: Vec<_> =
            members.iter().filter_map(|member| self.members.get(member)).map(|own| own.rank).collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }
}

/// `rank 3`, `ranks 0-3`; `member 3` if the job's ranks are unknown.
pub(super) fn who(own: Option<&Own>, members: &[u32]) -> String {
    let ranks = own.map(|own| own.ranks(members)).unwrap_or_default();
    if ranks.len() == members.len() {
        return phrase::ranks(&ranks);
    }
    let members: Vec<_> = members.iter().copied().map(Rank).collect();
    phrase::ranks(&members).replacen("rank", "member", 1)
}

/// `communicator 9ca792c9 (tp)`
pub(super) fn which(id: CommunicatorId, own: Option<&Own>) -> String {
    match own.map(|own| own.name.as_str()).filter(|name| !name.is_empty()) {
        Some(name) => format!("communicator {id} ({name})"),
        None => format!("communicator {id}"),
    }
}

/// A communicator in use that RAS does not name.
pub(super) fn unknown(own: &Own) -> Option<Statement> {
    // RAS has no communicators of one rank.
    let is_in_use = own.members.len() > 1 && own.members.values().any(|one| one.enqueued > 0);
    let members: Vec<_> = own.members.keys().copied().collect();
    let ranks = own.ranks(&members);
    is_in_use.then(|| Statement {
        communicator: own.id.to_string(),
        name: own.name.clone(),
        xpu_top: Some(format!("{} use it", phrase::ranks(&ranks))),
        ranks,
        agrees: Some(false),
        ..Statement::of(About::Unknown, format!("it does not name {}", which(own.id, Some(own))))
    })
}
