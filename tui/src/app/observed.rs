//! What is known of the jobs at a moment: now, or in the past while that is shown.

use std::collections::{BTreeMap, HashMap};

use xpu_model::{
    finding::{Finding, Log},
    job::Jobs,
};
use xpu_wire::{
    frame::Frame,
    id::{HostName, JobName},
    unit::Moment,
};

use super::{Incident, Others, StepTimes, job_view::Clock};

#[derive(Debug)]
pub(crate) struct Observed {
    pub now: Moment,
    pub jobs: Jobs,
    /// When the last frame of each host arrived, by this machine's clock.
    pub arrived: HashMap<HostName, Moment>,
    pub step_times: StepTimes,
    /// The findings of each job that was shown.
    logs: BTreeMap<JobName, Log>,
    pub incident: Option<Incident>,
    pub others: Others,
}

impl Observed {
    /// Empty data at this moment.
    pub(super) fn at(now: Moment) -> Self {
        Self {
            now,
            jobs: Jobs::default(),
            arrived: HashMap::new(),
            step_times: StepTimes::default(),
            logs: BTreeMap::new(),
            incident: None,
            others: Others::default(),
        }
    }

    /// Takes a frame that arrives now.
    pub(crate) fn take(&mut self, frame: &Frame) {
        if let Some(came) = self.arrived.get_mut(&frame.host) {
            *came = self.now;
        } else {
            self.arrived.insert(frame.host.clone(), self.now);
        }
        self.jobs.fold(frame);
    }

    /// The findings of a job while it was shown; `None` if it never was.
    pub(super) fn log(&self, job: &JobName) -> Option<&Log> {
        self.logs.get(job)
    }

    /// Ranks of all jobs.
    pub(crate) fn ranks(&self) -> usize {
        self.jobs.iter().map(|job| job.ranks().len()).sum()
    }

    /// The present time on a host.
    pub(super) fn clock(&self, host: &HostName) -> Clock {
        Clock {
            spoke: self.jobs.stream(host).map(|stream| stream.now),
            since: self.arrived.get(host).map_or_else(Default::default, |&came| self.now.since(came)),
        }
    }

    /// The present time where the jobs run, for rules based on the hosts' clocks.
    pub(super) fn there(&self) -> Moment {
        let hosts = self.arrived.iter();
        let clocks =
            hosts.filter_map(|(host, &came)| Some(self.jobs.stream(host)?.now.after(self.now.since(came))));
        clocks.max().unwrap_or(self.now)
    }

    /// Takes the present findings of the shown job.
    pub(super) fn follow(&mut self, shown: &JobName, findings: &[Finding]) {
        let there = self.there();
        let Some(job) = self.jobs.get(shown) else { return };
        self.others.settle(&self.jobs, job, there);
        let log = self.logs.entry(shown.clone()).or_default();
        log.follow(findings, self.now, job.last_report());
        self.step_times.follow(job, self.now);
        self.incident = Incident::follow(self.incident.take(), findings, self.now);
    }
}
