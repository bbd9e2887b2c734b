//! The app while it shows the past: arriving frames are folded but not shown.

use std::{collections::HashMap, mem::take, thread};

use xpu_client::arrival::Arrival;
use xpu_model::{finding::Log, job::Jobs};
use xpu_wire::{
    frame::{Body, Frame},
    id::HostName,
    unit::Moment,
};

use super::{App, Incident, StepTimes};
use crate::replay::{Mark, Of, Playback};

/// The state that continues while the past is shown.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    jobs: Jobs,
    arrived: HashMap<HostName, Moment>,
    /// The step times at the moment when the past was entered.
    step_times: StepTimes,
    log: Log,
    incident: Option<Incident>,
    now: Moment,
}

impl Parked {
    pub(crate) fn take(&mut self, frame: &Frame) {
        self.arrived.insert(frame.host.clone(), self.now);
        self.jobs.fold(frame);
    }
}

impl App {
    /// Shows a recording, or the past of what was shown until now.
    pub fn replay(&mut self, playback: Playback) {
        if playback.of == Of::Live && self.parked.is_none() {
            let (jobs, arrived) = (take(&mut self.jobs), take(&mut self.arrived));
            let step_times = take(&mut self.step_times);
            let (log, incident) = (take(&mut self.log), self.incident.take());
            self.parked = Some(Parked { jobs, arrived, step_times, log, incident, now: self.now });
        }
        self.playback = Some(playback);
    }

    /// Whether the screen shows the past.
    pub(crate) fn is_past(&self) -> bool {
        self.playback.is_some()
    }

    /// Whether a file is shown, which accepts no requests.
    pub(crate) fn is_replay(&self) -> bool {
        self.playback.as_ref().is_some_and(|playback| playback.of == Of::File)
    }

    /// Sets the present time at the job whose past is shown.
    pub(crate) fn set_parked_time(&mut self, now: Moment) {
        if let Some(parked) = &mut self.parked {
            parked.now = now;
        }
    }

    pub fn playback(&self) -> Option<&Playback> {
        self.playback.as_ref()
    }

    /// Ranks of all jobs.
    pub(crate) fn ranks(&self) -> usize {
        self.jobs.iter().map(|job| job.ranks().len()).sum()
    }

    /// Discards the state, but keeps the user's choices.
    pub(crate) fn forget(&mut self) {
        let gone = (take(&mut self.jobs), self.job_view.forget(), take(&mut self.step_times));
        // Freeing a thousand ranks would delay a jump noticeably, so another thread does it.
        let _ = thread::Builder::new().spawn(move || drop(gone));
        self.arrived.clear();
        self.log = Log::default();
        self.hosts.look_again();
        self.incident = None;
        self.alarmed = None;
    }

    pub(crate) fn go_live(&mut self) {
        if let Some(Parked { jobs, arrived, step_times, log, incident, now }) = self.parked.take() {
            let alarmed = self.alarmed;
            self.forget();
            // An incident for which the stacks were opened before does not open them again.
            self.alarmed = alarmed;
            (self.jobs, self.arrived, self.step_times, self.now) = (jobs, arrived, step_times, now);
            // Findings from before the pause are not new.
            (self.log, self.incident) = (log, incident);
            self.playback = None;
        }
    }

    pub(crate) fn found(&mut self, marks: Vec<Mark>, searched: Moment) {
        if let Some(playback) = &mut self.playback {
            playback.marks.extend(marks);
            playback.searched = searched;
        }
    }

    pub(crate) fn reach(&mut self, moment: Moment) {
        self.now = moment;
        if let Some(playback) = &mut self.playback {
            playback.position = moment;
        }
    }

    /// Whether the arrival must not change the shown state: it is kept aside while the past is shown, and
    /// details of unwatched ranks are not needed.
    pub(crate) fn put_aside(&mut self, arrival: &Arrival) -> bool {
        let Arrival::Frame(frame) = arrival else { return false };
        if let Some(parked) = &mut self.parked {
            parked.take(frame);
            return true;
        }
        matches!(&frame.body, Body::Detail(detail) if !self.watched.is_of(&detail.job, detail.rank))
    }
}
