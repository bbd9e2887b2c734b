//! Every known job, and the hosts that reported it.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{
    endpoint::BasePort,
    frame::{Body, Event, Frame, HostCpu, HostDigest, HostNeighbours, HostSnapshot, HostTimes, HostWork},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use super::Job;

/// Every job seen, by name.
#[derive(Debug, Default)]
pub struct Jobs {
    pub(super) known: BTreeMap<JobName, Job>,
    streams: BTreeMap<HostName, Stream>,
    collectors: BTreeMap<HostName, Collector>,
    /// The most advanced host clock.
    clock: Moment,
}

/// A host's collector, by its own report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collector {
    pub version: String,
    pub started: Moment,
    pub base: BasePort,
}

/// The state of one host's frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The host's clock in its last frame.
    pub now: Moment,
    /// Number of frames that the host reported as dropped.
    pub lost: u64,
}

impl Jobs {
    pub fn fold(&mut self, frame: &Frame) {
        if let Body::History(history) = &frame.body {
            // Each frame of the history has its own host and time.
            return history.frames.frames().for_each(|frame| self.fold(&frame));
        }
        self.note_hang(frame);
        let behind = self.update_clocks(frame);
        match &frame.body {
            Body::Snapshot(snapshot) => {
                self.introduce(&frame.host, snapshot);
                for job in &snapshot.jobs {
                    let known = self.job_mut(&job.job);
                    known.turned_away.insert(frame.host.clone(), job.turned_away);
                    known.update_clock(frame, behind);
                    for rank in &job.ranks {
                        known.introduce(&frame.host, &rank.info);
                        known.with_rank(rank.info.rank, |view| view.remember(&rank.earlier, &rank.advance));
                        known.digest(frame, &rank.digest);
                    }
                    known.forget_former();
                }
            }
            Body::Digest(HostDigest { job, ranks, turned_away }) => {
                let known = self.job_mut(job);
                known.turned_away.insert(frame.host.clone(), *turned_away);
                known.update_clock(frame, behind);
                for rank in ranks {
                    known.digest(frame, rank);
                }
            }
            Body::Detail(detail) => self.job_mut(&detail.job).detail(detail.rank, detail),
            Body::NcclDetail(nccl) => self.job_mut(&nccl.job).with_rank(nccl.rank, |view| {
                view.take_nccl(&nccl.report);
                false
            }),
            Body::Event(Event::Joined(info)) => {
                let known = self.job_mut(&info.job);
                known.update_clock(frame, behind);
                known.introduce(&frame.host, info);
                known.forget_former();
            }
            Body::Event(Event::Life { job, rank, pid, life }) => {
                self.job_mut(job).with_rank(*rank, |view| {
                    view.set_life(*pid, *life, frame.now);
                    true
                });
            }
            Body::Exit(exit) => self.job_mut(&exit.job).take_exit(exit),
            Body::Cpu(HostCpu { job, ranks }) => {
                let known = self.job_mut(job);
                for cpu in ranks {
                    known.with_rank(cpu.rank, |view| view.take_cpu(cpu, frame.now));
                }
            }
            Body::Times(HostTimes { job, ranks }) => {
                if let Some(known) = self.known.get_mut(job) {
                    for times in ranks {
                        known.with_rank(times.rank, |view| view.take_times(times, frame.now));
                    }
                }
            }
            Body::Load(load) => {
                if let Some(known) = self.known.get_mut(&load.job) {
                    for rank in &load.ranks {
                        known.with_rank(rank.rank, |view| view.take_load(load, rank, frame.now));
                    }
                }
            }
            Body::Neighbours(HostNeighbours { job, ranks }) => {
                let known = self.job_mut(job);
                for neighbours in ranks {
                    known.with_rank(neighbours.rank, |view| view.take_neighbours(neighbours, frame.now));
                }
            }
            Body::Work(HostWork { job, ranks }) => {
                let known = self.job_mut(job);
                for &(rank, pid) in ranks {
                    known.with_rank(rank, |view| view.take_work(pid, frame.now));
                }
            }
            Body::Stacks(stacks) => self.known.get_mut(&stacks.job).map_or((), |job| job.keep_stacks(stacks)),
            Body::Record(record) => self.known.get_mut(&record.job).map_or((), |job| job.keep_record(record)),
            Body::Ras(report) => self.known.get_mut(&report.job).map_or((), |job| job.keep_ras(report)),
            Body::WhatIf(of) => self.known.get_mut(&of.job).map_or((), |job| job.keep_what_if(of)),
            Body::Hello(_)
            | Body::Summary(_)
            | Body::Nccl(_)
            | Body::Goodbye
            | Body::Command(_)
            | Body::Request(_)
            | Body::CaptureAnswer(_)
            | Body::CapturePart(_)
            | Body::CaptureSheet(_)
            | Body::TimedCaptureSheet(_)
            | Body::Relay(_)
            | Body::History(_)
            | Body::Refusal(_)
            | Body::Kineto(_)
            | Body::KinetoPart(_)
            | Body::PythonSamples(_)
            | Body::Functions(_) => {}
        }
    }

    /// Notes the clock of a frame's host. Returns how much it is behind the most advanced one.
    fn update_clocks(&mut self, frame: &Frame) -> Duration {
        let stream = self.streams.entry(frame.host.clone()).or_default();
        stream.now = stream.now.max(frame.now);
        stream.lost = stream.lost.max(frame.lost);
        self.clock = self.clock.max(frame.now);
        self.clock.since(frame.now)
    }

    /// Drops the details of all ranks but these: a new viewer of a rank receives all of it again.
    pub fn keep_details(&mut self, wanted: impl Fn(&JobName, Rank) -> bool) {
        for job in self.known.values_mut() {
            for (&rank, view) in &mut job.ranks {
                if view.summary().is_some() && !wanted(&job.name, rank) {
                    view.forget_detail();
                    job.revision += 1;
                }
            }
        }
    }

    /// Drops ranks, and jobs without ranks.
    pub fn forget(&mut self, gone: impl Fn(&JobName, Rank) -> bool) {
        for job in self.known.values_mut() {
            let before = job.ranks.len();
            job.ranks.retain(|&rank, _| !gone(&job.name, rank));
            job.revision += u64::from(job.ranks.len() != before);
        }
        self.known.retain(|_, job| !job.ranks.is_empty());
    }

    /// Takes a host's snapshot. A host repeats it every two seconds, mostly unchanged.
    fn introduce(&mut self, host: &HostName, snapshot: &HostSnapshot) {
        let known = self.collectors.get(host);
        if known.is_none_or(|known| (&known.version, known.started) != (&snapshot.version, snapshot.started))
        {
            let HostSnapshot { version, started, base, .. } = snapshot;
            let collector = Collector { version: version.clone(), started: *started, base: *base };
            self.collectors.insert(host.clone(), collector);
        }
    }

    /// The collectors that reported themselves, by host.
    pub fn collectors(&self) -> impl Iterator<Item = (&HostName, &Collector)> {
        self.collectors.iter()
    }

    fn job_mut(&mut self, name: &JobName) -> &mut Job {
        self.known.entry(name.clone()).or_insert_with(|| Job::new(name.clone()))
    }

    pub fn get(&self, name: &JobName) -> Option<&Job> {
        self.known.get(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.known.values()
    }

    /// The default job: the one with most living ranks, then the one heard last.
    pub fn foremost(&self) -> Option<&Job> {
        self.known.values().max_by_key(|job| (job.living(), job.last_report()))
    }

    /// The most advanced host clock, at its last report.
    pub fn clock(&self) -> Moment {
        self.clock
    }

    pub fn stream(&self, host: &HostName) -> Option<Stream> {
        self.streams.get(host).copied()
    }

    /// Number of frames that all hosts reported as dropped.
    pub fn lost_frames(&self) -> u64 {
        self.streams.values().map(|stream| stream.lost).sum()
    }
}
