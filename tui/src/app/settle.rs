//! Computes the view from the job before a redraw: once per redraw, however many frames have arrived since
//! the last one.

use std::time::Duration;

use xpu_wire::{
    frame::{Body, Frame},
    id::HostName,
};

use super::App;
use crate::page::Page;

/// Interval, in recorded time, at which the view is updated on the way to a moment; longer with many ranks.
const INTERVAL: Duration = Duration::from_secs(1);
const EACH: u32 = 128;

impl App {
    /// The interval, in recorded time, of computing findings.
    pub(crate) fn between_settlings(&self) -> Duration {
        INTERVAL * (1 + self.observed.ranks() as u32 / EACH)
    }

    /// Does work of the next redraw in advance, for a frame that has just arrived.
    pub(crate) fn prepare(&mut self, frame: &Frame) {
        match &frame.body {
            Body::Digest(digest) => {
                if let Some(job) = self.observed.jobs.get(&digest.job) {
                    self.job_view.prepare(job, digest.ranks.iter().map(|rank| rank.rank));
                }
            }
            Body::Snapshot(snapshot) => {
                for shown in &snapshot.jobs {
                    if let Some(job) = self.observed.jobs.get(&shown.job) {
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
        self.selection.follow_foremost(&self.observed.jobs);
        let Some(job) = self.selection.job(&self.observed.jobs) else { return };
        let there = self.observed.there();
        let sorted_by = self.listing.sort.column.metric();
        let judge = sorted_by.unwrap_or_else(|| self.maps.metrics(&self.job_view.reported())[0]);
        let (lost, clock) = (self.observed.jobs.lost_frames(), |host: &HostName| self.observed.clock(host));
        self.job_view.update(job, lost, there, &self.listing, judge, clock);
        let log = self.observed.log(job.name());
        self.job_view.extend_findings(job, log, self.observed.now);
        self.history.take(job.name(), &self.job_view, there);
        self.job_view.inspect(job, self.selection.rank.filter(|_| self.page == Page::Rank));
        let shown = job.name().clone();
        self.observed.follow(&shown, &self.job_view.findings);
        self.selection.finding = self.selection.finding.min(self.job_view.findings.len().saturating_sub(1));
        // For a hung job, every page and the report show the rank's position.
        if self.job_view.stall().is_some() {
            self.settle_stacks();
        }
    }

    /// Updates the positions of the ranks, and their stacks.
    pub(crate) fn settle_stacks(&mut self) {
        let Some(job) = self.selection.job(&self.observed.jobs) else { return };
        self.stacks.settle(job, self.job_view.matching(), self.observed.incident.as_ref());
    }
}
