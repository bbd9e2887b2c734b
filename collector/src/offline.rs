//! Serves one host's ranks without sockets, clock and GPUs, for simulated jobs. Frames of workers go in,
//! frames for viewers come out. They pass through the roster, digests and history of a real collector; or,
//! where the digests are simulated, only through its history.

use std::{collections::BTreeMap, path::Path, time::Duration};

use xpu_wire::{
    codec,
    frame::{Body, DeviceReading, Frame, GpuProcess, History, HostSnapshot, RankCpu},
    id::{DeviceUuid, HostName, JobName, Pid, Rank},
    unit::Moment,
};

use crate::{
    address::Identity,
    cpu::CpuReading,
    history::Past,
    roster::{Effect, Roster},
    serve::TIMES_EVERY,
};

/// The length of the history that viewers request.
const DAY: Duration = Duration::from_hours(24);

/// The history of one host whose frames are simulated.
#[derive(Debug)]
pub struct OfflineHistory(Past);

impl OfflineHistory {
    pub fn new(now: Moment) -> Self {
        // No file can exist at this path, so the history is only in memory.
        Self(Past::open(Path::new("/dev/null/history"), now))
    }

    /// Keeps a published frame.
    pub fn keep(&mut self, frame: &Frame) {
        self.0.keep(frame, &codec::encode(frame), frame.now);
        self.0.tend(frame.now);
    }

    /// The history of a job for a viewer that connects now, with this many digests of each rank.
    pub fn for_new_viewer(
        &mut self,
        job: &JobName,
        started: Moment,
        digests: u32,
        now: Moment,
    ) -> Vec<History> {
        self.0.thinned(&[(job.clone(), started)], DAY, digests, now)
    }
}

#[derive(Debug)]
pub struct Offline {
    host: HostName,
    started: Moment,
    roster: Roster,
    past: Past,
    /// The last number of each stream of frames.
    numbers: BTreeMap<u16, u64>,
    digests: u32,
}

impl Offline {
    pub fn new(host: HostName, now: Moment) -> Self {
        let OfflineHistory(past) = OfflineHistory::new(now);
        Self { host, started: now, roster: Roster::default(), past, numbers: BTreeMap::new(), digests: 0 }
    }

    /// Takes a message of the worker with this identity. The result is empty if nothing needs to be published
    /// at once.
    pub fn take(&mut self, from: u32, frame: Frame, now: Moment) -> Vec<Frame> {
        let from = Identity(from.to_le_bytes().to_vec());
        let effects = match frame.body {
            Body::Hello(info) => self.roster.hello(&from, frame.number, info, now),
            Body::Summary(summary) => self.roster.summary(&from, frame.number, summary, now),
            Body::Goodbye => self.roster.goodbye(&from, now),
            _ => Vec::new(),
        };
        self.published(effects, now)
    }

    /// Does the work that a real collector does four times a second.
    pub fn check(&mut self, now: Moment) -> Vec<Frame> {
        let effects = self.roster.check(now);
        let mut frames = self.published(effects, now);
        let stalled = self.roster.stalled(now);
        for record in self.roster.records_to_publish(&stalled, now) {
            frames.push(self.frame(Body::Record(record), now));
        }
        frames
    }

    /// Does the work that a real collector does once a second, with the readings of GPUs and processes.
    pub fn digest(
        &mut self,
        now: Moment,
        device: impl FnMut(DeviceUuid) -> Option<DeviceReading>,
        mut cpu: impl FnMut(Rank, Pid) -> Option<RankCpu>,
        processes: impl Fn(DeviceUuid) -> Vec<GpuProcess>,
    ) -> Vec<Frame> {
        self.roster.take_devices(device);
        let read = |rank, pid| cpu(rank, pid).map(|wait| CpuReading { wait, is_busy: false });
        let mut bodies = self.roster.cpu(now, read);
        bodies.extend(self.roster.neighbours(processes));
        bodies.extend(self.roster.digests(now).into_iter().map(Body::Digest));
        self.digests += 1;
        if self.digests.is_multiple_of(TIMES_EVERY) {
            bodies.extend(self.roster.times(now).into_iter().map(Body::Times));
        }
        bodies.into_iter().map(|body| self.kept(body, now)).collect()
    }

    /// The frames for a viewer that connects now: the history of a day with this many digests of each rank, then
    /// the state.
    pub fn for_new_viewer(&mut self, digests: u32, now: Moment) -> Vec<Frame> {
        let jobs = self.roster.jobs();
        let parts = self.past.thinned(&jobs, DAY, digests, now);
        let mut frames: Vec<Frame> =
            parts.into_iter().map(|part| self.frame(Body::History(part), now)).collect();
        let snapshot = HostSnapshot {
            version: xpu_wire::VERSION.to_owned(),
            started: self.started,
            base: xpu_wire::endpoint::BasePort::DEFAULT,
            jobs: self.roster.snapshot(),
        };
        frames.push(self.frame(Body::Snapshot(snapshot), now));
        frames
    }

    fn published(&mut self, effects: Vec<Effect>, now: Moment) -> Vec<Frame> {
        let bodies = effects.into_iter().filter_map(|effect| match effect {
            Effect::Publish(body) => Some(*body),
            _ => None,
        });
        bodies.collect::<Vec<_>>().into_iter().map(|body| self.kept(body, now)).collect()
    }

    fn kept(&mut self, body: Body, now: Moment) -> Frame {
        let frame = self.frame(body, now);
        if matches!(
            frame.body,
            Body::Digest(_) | Body::Cpu(_) | Body::Times(_) | Body::Neighbours(_) | Body::Event(_)
        ) {
            self.past.keep(&frame, &codec::encode(&frame), now);
            self.past.tend(now);
        }
        frame
    }

    fn frame(&mut self, body: Body, now: Moment) -> Frame {
        let number = self.numbers.entry(body.kind()).or_default();
        *number += 1;
        Frame { host: self.host.clone(), number: *number, now, lost: 0, body }
    }
}
