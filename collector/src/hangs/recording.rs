//! One job's data around one moment, as a recording: the history before, and the data read during the hang.

use std::{
    collections::{BTreeMap, VecDeque},
    io,
    time::Duration,
};

use xpu_model::job::Job;
use xpu_recording::{Header, Packer, Ring, Writer};
use xpu_wire::{
    VERSION, codec,
    frame::{Body, Event, Frame, HostSnapshot, RankInfo},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

/// Limits in bytes of the history's frames, uncompressed, and of the recording. Beyond them, the oldest
/// frames are left out.
const MOST_PAST: usize = 64 << 20;
const MOST_BYTES: usize = 32 << 20;

/// Frames of this time are compressed together.
const BLOCK: Duration = Duration::from_secs(10);

/// A kind of frame. The recording has the latest of each kind per rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Exit,
    Record,
    Stacks,
    /// One answer for all ranks, stored under rank 0.
    Ras,
}

#[derive(Debug)]
pub(super) struct IncidentRecording {
    job: JobName,
    /// History, oldest first.
    past: VecDeque<(Moment, Vec<u8>)>,
    past_bytes: usize,
    /// Whether the history is complete.
    pub(super) has_past: bool,
    infos: Vec<RankInfo>,
    snapshot: Option<(Moment, Frame)>,
    parts: BTreeMap<(Part, Rank), (Moment, Frame)>,
    /// When the kernels on the GPUs were requested. From then on only stacks are taken, because reading them
    /// ends the ranks.
    held: Option<Moment>,
}

impl IncidentRecording {
    pub(super) fn of(job: JobName) -> Self {
        Self {
            job,
            past: VecDeque::new(),
            past_bytes: 0,
            has_past: false,
            infos: Vec::new(),
            snapshot: None,
            parts: BTreeMap::new(),
            held: None,
        }
    }

    /// Takes data that arrived before the incident began, such as ranks' ends.
    pub(super) fn take_known(&mut self, job: &Job) {
        let (Some(host), now) = (job.hosts().first().copied().cloned(), Moment::now()) else { return };
        let frame = |body| Frame { host: host.clone(), number: 0, now, lost: 0, body };
        let exits = job.ranks().filter_map(|(_, view)| view.exit()).map(|exit| Body::Exit(exit.clone()));
        let records = job.records().map(|record| Body::Record(record.clone()));
        let stacks = job.stacks().map(|stacks| Body::Stacks(stacks.clone()));
        for body in exits.chain(records).chain(stacks) {
            self.take(&frame(body), now);
        }
    }

    /// Takes only stacks from now on, and stores them as of `now`.
    pub(super) fn hold(&mut self, now: Moment) {
        self.held = Some(now);
    }

    /// Takes a received frame; `true` if it adds something to the recording.
    pub(super) fn take(&mut self, frame: &Frame, now: Moment) -> bool {
        if self.held.is_some() && !matches!(frame.body, Body::Stacks(_)) {
            return false;
        }
        let now = self.held.unwrap_or(now);
        let (part, rank) = match &frame.body {
            Body::History(history) => {
                if self.has_past {
                    return false;
                }
                history.frames.split().for_each(|bytes| self.take_past(bytes));
                self.has_past = !history.more;
                return self.has_past;
            }
            Body::Snapshot(snapshot) => {
                self.take_snapshot(frame, snapshot, now);
                return false;
            }
            Body::Exit(exit) if exit.job == self.job => (Part::Exit, exit.rank),
            Body::Record(record) if record.job == self.job => (Part::Record, record.rank),
            Body::Stacks(stacks) if stacks.job == self.job => (Part::Stacks, stacks.rank),
            Body::Ras(report) if report.job == self.job => (Part::Ras, Rank(0)),
            _ => return false,
        };
        let is_known =
            self.parts.get(&(part, rank)).is_some_and(|(_, known)| match (&known.body, &frame.body) {
                (Body::Stacks(known), Body::Stacks(new)) => known == new || new.lacks_gpus_of(known),
                (known, new) => known == new,
            });
        if !is_known {
            self.parts.insert((part, rank), (now, frame.clone()));
        }
        !is_known
    }

    fn take_past(&mut self, bytes: &[u8]) {
        let Ok(frame) = codec::decode(bytes) else { return };
        let job = match &frame.body {
            Body::Digest(digest) => &digest.job,
            Body::Event(event) => event.job(),
            _ => return,
        };
        if *job != self.job {
            return;
        }
        self.past_bytes += bytes.len();
        self.past.push_back((frame.now, bytes.to_vec()));
        while self.past_bytes > MOST_PAST
            && let Some((_, oldest)) = self.past.pop_front()
        {
            self.past_bytes -= oldest.len();
        }
    }

    /// Takes this job's part of a snapshot.
    fn take_snapshot(&mut self, frame: &Frame, snapshot: &HostSnapshot, now: Moment) {
        let jobs: Vec<_> = snapshot.jobs.iter().filter(|job| job.job == self.job).cloned().collect();
        let infos = jobs.iter().flat_map(|job| job.ranks.iter().map(|rank| rank.info.clone()));
        if self.infos.is_empty() {
            self.infos = infos.collect();
        }
        if !jobs.is_empty() {
            let body = Body::Snapshot(HostSnapshot { jobs, ..snapshot.clone() });
            self.snapshot = Some((now, Frame { body, ..frame.clone() }));
        }
    }

    /// The data as the bytes of a recording.
    pub(super) fn recording(&self, host: &HostName, made: Moment) -> io::Result<Vec<u8>> {
        let mut packer = Packer::closing_after(BLOCK);
        let mut ring = Ring::new(MOST_BYTES, Duration::MAX);
        let mut push = |at: Moment, bytes: &[u8]| -> io::Result<()> {
            packer.due(at)?.into_iter().for_each(|block| ring.push(block));
            // A frame beyond the size limit is left out.
            packer
                .push_encoded(at, None, bytes)
                .ok()
                .flatten()
                .into_iter()
                .for_each(|block| ring.push(block));
            Ok(())
        };
        let mut last: Vec<_> = self.parts.values().chain(&self.snapshot).collect();
        last.sort_by_key(|(at, _)| *at);
        let begin = self.past.front().map(|(at, _)| *at);
        let begin = begin.or_else(|| last.first().map(|(at, _)| *at)).unwrap_or(made);
        // The ranks joined before the saved history begins.
        for info in &self.infos {
            let body = Body::Event(Event::Joined(info.clone()));
            let joined = Frame { host: host.clone(), number: 0, now: begin, lost: 0, body };
            push(begin, &codec::encode(&joined))?;
        }
        for (at, bytes) in &self.past {
            push(*at, bytes)?;
        }
        for (at, frame) in last {
            push(*at, &codec::encode(frame))?;
        }
        packer.rest()?.into_iter().for_each(|block| ring.push(block));
        let header =
            Header { job: self.job.to_string(), hosts: vec![host.to_string()], made, by: VERSION.to_owned() };
        let mut writer = Writer::begin(Vec::with_capacity(ring.bytes() + 4096), &header)?;
        ring.blocks().try_for_each(|block| writer.write(block))?;
        Ok(writer.finish()?.0)
    }
}
