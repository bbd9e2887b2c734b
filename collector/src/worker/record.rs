//! A rank's last NCCL calls, read from its ledger page, even if the rank is stopped, hung or dead.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    datatype::DataType,
    frame::{CallSite, CallState, PrecedingWork, RankRecord, RecordedCall, RecordedCommunicator, StackFrame},
    id::CommunicatorId,
    ledger::{CallReading, CommunicatorReading, Ledger},
    text,
    unit::Moment,
};

use super::Worker;
use crate::digest::Known;

/// If a hook has not queried its events for this time, their state on the GPU is unknown: the hook's thread
/// may be blocked in a CUDA call.
const ASKED: Duration = Duration::from_secs(3);

/// A record read this recently is sent again, for any number of viewers.
const LATELY: Duration = Duration::from_millis(500);

impl Worker {
    /// The rank's last `most` calls.
    pub(crate) fn record(&mut self, most: usize, now: Moment) -> RankRecord {
        let known =
            self.record.as_ref().filter(|(of, record)| *of == most && now.since(record.read_at) < LATELY);
        if let Some((_, record)) = known {
            return (**record).clone();
        }
        let record = self.read_record(most, now);
        self.record = Some((most, Box::new(record.clone())));
        record
    }

    /// The record of a rank in a hung job, once per hang.
    pub(crate) fn record_to_publish(&mut self, pause: Duration, now: Moment) -> Option<RankRecord> {
        let moved = self.progress().moved;
        if self.published.is_some_and(|at| at >= moved || now.since(at) < pause) {
            return None;
        }
        self.published = Some(now);
        Some(self.record(RankRecord::share(self.info.world_size), now))
    }

    fn read_record(&self, most: usize, now: Moment) -> RankRecord {
        let (job, rank, pid) = (self.info.job.clone(), self.info.rank, self.info.pid);
        let Some(page) = &self.ledger else {
            let why = match &self.no_ledger {
                Some(why) => format!(
                    "the record of rank {rank} cannot be read: {why}; its hook and its collector must be of the same xpu-top version"
                ),
                None => format!("rank {rank} keeps no record: its hook found no memory for one"),
            };
            return RankRecord { read_at: now, ..RankRecord::unread(job, rank, pid, why) };
        };
        let mut reading = Reading::new(page.ledger(), &self.communicators, now);
        let (calls, made) = page.ledger().record.read(most);
        let calls: Vec<_> = calls.into_iter().map(|call| reading.call(call)).collect();
        let preceding = calls.iter().filter_map(|call| preceding(page.ledger(), call)).collect();
        let Reading { communicators, sites, .. } = reading;
        let why = String::new();
        RankRecord { job, rank, pid, read_at: now, made, communicators, sites, calls, preceding, why }
    }
}

/// A record being assembled.
struct Reading<'a> {
    ledger: &'a Ledger,
    /// Whether the hook has queried its events recently.
    asks: bool,
    lines: Vec<CommunicatorReading>,
    communicators: Vec<RecordedCommunicator>,
    sites: Vec<CallSite>,
    places: BTreeMap<(u16, u64), u16>,
}

impl<'a> Reading<'a> {
    fn new(ledger: &'a Ledger, known: &[Known], now: Moment) -> Self {
        let asks = now.since(ledger.record.asked_at()) < ASKED;
        let lines = ledger.read().communicators;
        let of_line = |line: &CommunicatorReading| {
            let name = known.iter().find(|known| known.is_of(line)).map(|known| known.state.name.clone());
            RecordedCommunicator {
                id: line.id,
                name: name.unwrap_or_default(),
                member: line.rank,
                size: line.size,
                closed: false,
            }
        };
        let open: Vec<_> = lines.iter().map(of_line).collect();
        let closed = known.iter().filter(|known| !lines.iter().any(|line| known.is_of(line)));
        let closed = closed.map(|known| RecordedCommunicator {
            id: known.state.id,
            name: known.state.name.clone(),
            member: known.state.rank,
            size: known.state.size,
            closed: true,
        });
        let communicators = open.into_iter().chain(closed).collect();
        Self { ledger, asks, lines, communicators, sites: Vec::new(), places: BTreeMap::new() }
    }

    fn communicator(&mut self, id: CommunicatorId, member: u32) -> usize {
        let is = |one: &RecordedCommunicator| (one.id, one.member) == (id, member);
        self.communicators.iter().position(is).unwrap_or_else(|| {
            let (name, size, closed) = (String::new(), 0, true);
            self.communicators.push(RecordedCommunicator { id, name, member, size, closed });
            self.communicators.len() - 1
        })
    }

    fn site(&mut self, number: u16, returns_to: u64) -> Option<u16> {
        if (number, returns_to) == (0, 0) {
            return None;
        }
        let next = u16::try_from(self.sites.len()).ok()?;
        let (sites, ledger) = (&mut self.sites, self.ledger);
        Some(*self.places.entry((number, returns_to)).or_insert_with(|| {
            let text = ledger.record.sites.read(number).map(|site| site.text).unwrap_or_default();
            let native = ledger.record.native_sites.read(returns_to).unwrap_or_default();
            sites.push(CallSite { frames: frames(&text), returns_to, native });
            next
        }))
    }

    fn call(&mut self, call: CallReading) -> RecordedCall {
        let place = self.communicator(call.communicator, call.member);
        let is = |line: &&CommunicatorReading| (line.id, line.rank) == (call.communicator, call.member);
        let completed = self.lines.iter().find(is).map(|line| line.completed);
        let last = call.number.map(|number| number + u64::from(call.replays.max(1)));
        let ended = match completed {
            Some(completed) => call.operation.is_collective() && last.is_some_and(|last| last <= completed),
            None => call.enqueued,
        };
        let state = match () {
            () if call.refused => CallState::Refused,
            () if call.captured => CallState::Captured,
            () if ended => CallState::Done,
            () if call.begun && call.enqueued => CallState::Begun,
            () if call.queued && call.enqueued && self.asks => CallState::Queued,
            // A graph's calls are launched once the launch of the graph has returned. This is not recorded
            // for each call.
            () if call.enqueued || call.replays > 0 => CallState::Enqueued,
            () => CallState::Entered,
        };
        RecordedCall {
            order: call.ticket,
            communicator: u16::try_from(place).unwrap_or(u16::MAX),
            number: call.number,
            operation: call.operation,
            datatype: if call.replays > 0 { DataType::Other(u8::MAX) } else { call.datatype },
            reduction: call.reduction.checked_sub(1),
            peer: call.peer,
            bytes: call.bytes,
            replays: call.replays,
            group: call.group,
            stream: call.stream,
            entered: call.at,
            state,
            site: self.site(call.site, call.returns_to),
        }
    }
}

/// The work launched before a call, if the call's stream may not have reached the call yet.
fn preceding(ledger: &Ledger, call: &RecordedCall) -> Option<PrecedingWork> {
    let waits = matches!(call.state, CallState::Queued | CallState::Enqueued);
    let known = ledger.record.preceding(call.order).filter(|_| waits)?;
    Some(PrecedingWork {
        order: call.order,
        work: known.work.to_string(),
        launched: Some(known.at).filter(|&at| at > Moment(0)),
        stream: known.stream,
    })
}

/// Parses the hook's format: function, file and line, with one frame per line.
pub(super) fn frames(text: &str) -> Vec<StackFrame> {
    let frame = |line: &str| {
        let mut parts = line.split('\0');
        let [function, file, line] = [parts.next()?, parts.next()?, parts.next()?];
        let clean = |text: &str| text::clean(text).into_owned();
        Some(StackFrame { function: clean(function), file: clean(file), line: line.parse().ok()? })
    };
    text.lines().filter_map(frame).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_the_hook_wrote_them() {
        let text = "all_reduce\0torch/distributed/c10d.py\x002500\nlog_metrics\0/work/train.py\x00212\ncut\0";
        let lines: Vec<_> = frames(text).into_iter().map(|frame| (frame.function, frame.line)).collect();
        assert_eq!(lines, [("all_reduce".to_owned(), 2500), ("log_metrics".to_owned(), 212)]);
    }
}
