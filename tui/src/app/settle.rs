//! Computes the view from the job before a redraw: once per redraw, however many frames have arrived since
//! the last one.

use xpu_wire::{
    frame::{Body, Frame},
    id::HostName,
};

use super::{App, Incident, job_view::Clock};
use crate::page::Page;

impl App {
    /// Does work of the next redraw in advance, for a frame that has just arrived.
    pub(crate) fn prepare(&mut self, frame: &Frame) {
        match &frame.body {
            Body::Digest(digest) => {
                if let Some(job) = self.jobs.get(&digest.job) {
                    self.job_view.prepare(job, digest.ranks.iter().map(|rank| rank.rank));
                }
            }
            Body::Snapshot(snapshot) => {
                for shown in &snapshot.jobs {
                    if let Some(job) = self.jobs.get(&shown.job) {
                        self.job_view.prepare(job, shown.ranks.iter().map(|rank| rank.info.rank));
                    }
                }
            }
            _ => {}
        }
    }

    /// Updates the whole view.
    pub fn settle(&mut self) {
        self.settle_job();
        self.page.view().settle(self);
    }

    /// Updates what several pages show.
    fn settle_job(&mut self) {
        self.selection.follow_foremost(&self.jobs);
        let Some(job) = self.selection.job(&self.jobs) else { return };
        let (jobs, arrived, now) = (&self.jobs, &self.arrived, self.now);
        let clock = |host: &HostName| Clock {
            spoke: jobs.stream(host).map(|stream| stream.now),
            since: arrived.get(host).map_or_else(Default::default, |&came| now.since(came)),
        };
        // The current time where the job runs, for rules based on the hosts' clocks.
        let shown =
            arrived.iter().filter_map(|(host, &came)| Some(jobs.stream(host)?.now.after(now.since(came))));
        let there = shown.max().unwrap_or(now);
        let judge = self
            .listing
            .sort
            .column
            .metric()
            .unwrap_or_else(|| self.maps.metrics(&self.job_view.reported())[0]);
        self.job_view.update(job, jobs.lost_frames(), there, &self.listing, judge, clock);
        self.others.settle(jobs, job, there);
        self.history.take(job.name(), &self.job_view, there);
        self.job_view.inspect(job, self.selection.rank.filter(|_| self.page == Page::Rank));
        self.log.follow(&self.job_view.findings, now);
        self.step_times.follow(job, now);
        self.incident = Incident::follow(self.incident.take(), &self.job_view.findings, now);
        self.selection.finding = self.selection.finding.min(self.job_view.findings.len().saturating_sub(1));
        // For a hung job, every page and the report show the rank's position.
        if self.job_view.stall().is_some() {
            self.settle_stacks();
        }
    }

    /// Updates the positions of the ranks, and their stacks.
    pub(crate) fn settle_stacks(&mut self) {
        let Some(job) = self.selection.job(&self.jobs) else { return };
        self.stacks.settle(job, self.job_view.meant(), self.incident.as_ref());
    }
}
