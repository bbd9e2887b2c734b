//! `xpu-top collectives --json`

use serde::Serialize;
use xpu_model::{divergence::Divergence, job::Job};
use xpu_wire::{
    collective::Operation,
    frame::{CallState, RankRecord, RecordedCall, StackFrame},
    id::{HostName, JobName, Pid, Rank},
    unit::Moment,
};

#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    job: &'a JobName,
    /// The first divergence of the calls; `null` if the recorded calls do not diverge.
    divergence: Option<&'a Divergence>,
    ranks: Vec<OneRank<'a>>,
    /// Ranks that have answered without a record, and why.
    unread: Vec<Unread<'a>>,
    no_answer: Vec<Rank>,
}

#[derive(Debug, Serialize)]
struct Unread<'a> {
    rank: Rank,
    why: &'a str,
}

#[derive(Debug, Serialize)]
struct OneRank<'a> {
    rank: Rank,
    host: HostName,
    pid: Pid,
    read_at: Moment,
    /// Number of calls since the process started.
    made: u64,
    calls: Vec<OneCall<'a>>,
}

#[derive(Debug, Serialize)]
struct OneCall<'a> {
    order: u64,
    communicator: String,
    name: &'a str,
    /// For a collective, its number in the communicator; for a send or receive, its number between the two
    /// ranks.
    number: Option<u64>,
    operation: Operation,
    datatype: String,
    reduction: Option<u8>,
    /// The root or the peer, by its rank in the communicator.
    peer: Option<u32>,
    bytes: u64,
    #[serde(skip_serializing_if = "is_none")]
    replays: u32,
    group: Option<u64>,
    stream: String,
    entered: Moment,
    state: CallState,
    #[serde(skip_serializing_if = "Option::is_none")]
    preceding: Option<Preceding<'a>>,
    /// `train.py:212 log_metrics`; outside of Python the same as `native`.
    site: Option<String>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    frames: &'a [StackFrame],
    returns_to: Option<String>,
    /// `libtorch_cuda.so+0x1a2b3c`: the file that contains this address, and the offset in it.
    native: Option<&'a str>,
}

/// The operation launched last before a call that the stream has not reached yet.
#[derive(Debug, Serialize)]
struct Preceding<'a> {
    work: &'a str,
    launched: Option<Moment>,
    stream: String,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "as serde calls it")]
fn is_none(replays: &u32) -> bool {
    *replays == 0
}

impl<'a> Document<'a> {
    pub(super) fn of(job: &'a Job, records: &[&'a RankRecord], last: Option<usize>) -> Self {
        let no_answer = job.ranks().map(|(rank, _)| rank).filter(|&rank| job.record(rank).is_none());
        let unread = job.records().filter(|record| !record.why.is_empty());
        Self {
            job: job.name(),
            divergence: job.divergence(),
            unread: unread.map(|record| Unread { rank: record.rank, why: &record.why }).collect(),
            no_answer: no_answer.collect(),
            ranks: records.iter().map(|record| rank(job, record, last)).collect(),
        }
    }
}

fn rank<'a>(job: &Job, record: &'a RankRecord, last: Option<usize>) -> OneRank<'a> {
    let host = job.rank(record.rank).map(|view| view.host().clone()).unwrap_or_default();
    let RankRecord { rank, pid, read_at, made, .. } = *record;
    let skipped = record.calls.len().saturating_sub(last.unwrap_or(usize::MAX));
    OneRank {
        rank,
        host,
        pid,
        read_at,
        made,
        calls: record.calls[skipped..].iter().map(|call| one(record, call)).collect(),
    }
}

fn one<'a>(record: &'a RankRecord, call: &RecordedCall) -> OneCall<'a> {
    let communicator = record.communicator(call);
    let site = record.site(call);
    let address = |address: u64| format!("{address:#x}");
    OneCall {
        order: call.order,
        communicator: communicator.map(|one| one.id.to_string()).unwrap_or_default(),
        name: communicator.map_or("", |one| &one.name),
        number: call.number,
        operation: call.operation,
        datatype: call.datatype.to_string(),
        reduction: call.reduction,
        peer: call.peer,
        bytes: call.bytes,
        replays: call.replays,
        group: call.group,
        stream: address(call.stream),
        entered: call.entered,
        state: call.state,
        preceding: record.preceding(call).map(|work| Preceding {
            work: &work.work,
            launched: work.launched,
            stream: address(work.stream),
        }),
        site: site.and_then(xpu_wire::frame::CallSite::place),
        frames: site.map_or(&[], |site| &site.frames),
        returns_to: site.map(|site| site.returns_to).filter(|&at| at != 0).map(address),
        native: site.map(|site| site.native.as_str()).filter(|native| !native.is_empty()),
    }
}
