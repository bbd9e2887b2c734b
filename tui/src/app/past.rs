//! The app while it shows what is past: what comes in goes on being known, and is not shown.

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

/// What goes on.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    jobs: Jobs,
    arrived: HashMap<HostName, Moment>,
    /// As they were when the past was gone to.
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

    /// Whether what is shown is not of now.
    pub(crate) fn is_past(&self) -> bool {
        self.playback.is_some()
    }

    /// Whether a file is shown: it accepts no requests.
    pub(crate) fn is_replay(&self) -> bool {
        self.playback.as_ref().is_some_and(|playback| playback.of == Of::File)
    }

    /// It is this time where the job runs whose past is shown.
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

    /// Takes the place of warnings of its kind.
    pub(crate) fn complain(&mut self, complaints: Vec<String>) {
        self.warnings.clear();
        for complaint in complaints {
            self.warn(complaint);
        }
    }

    /// Nothing is known any more; what the user chose to see stays.
    pub(crate) fn forget(&mut self) {
        let gone = (take(&mut self.jobs), take(&mut self.job_view), take(&mut self.step_times));
        // Freeing a thousand ranks takes long enough to be felt in a jump: it happens elsewhere.
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
            // What was shown of itself before is not shown so again.
            self.alarmed = alarmed;
            (self.jobs, self.arrived, self.step_times, self.now) = (jobs, arrived, step_times, now);
            // What was found before the pause is not found anew.
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

    /// History is not received live, nor an unwatched rank's detail.
    pub(crate) fn put_aside(&mut self, arrival: &Arrival) -> bool {
        let Arrival::Frame(frame) = arrival else { return false };
        if let Some(parked) = &mut self.parked {
            parked.take(frame);
            return true;
        }
        matches!(&frame.body, Body::Detail(detail) if !self.watched.is_of(&detail.job, detail.rank))
    }
}
