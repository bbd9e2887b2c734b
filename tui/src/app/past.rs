//! The app while it shows the past: arriving frames are folded but not shown.

use std::{mem::replace, thread};

use xpu_client::arrival::Arrival;
use xpu_wire::{frame::Body, unit::Moment};

use super::{App, Observed};
use crate::playback::{Mark, Of, Playback};

/// The past that is shown.
#[derive(Debug)]
pub(crate) struct Past {
    pub playback: Playback,
    /// For a running job: the present, which continues meanwhile. Its findings and step times stay as they
    /// were when the past was entered.
    present: Option<Observed>,
}

impl App {
    /// Shows a recording, or the past of what was shown until now.
    pub fn replay(&mut self, playback: Playback) {
        let present = match self.past.take() {
            Some(past) => past.present,
            None if playback.of == Of::Live => {
                let nothing = Observed::at(self.observed.now);
                Some(replace(&mut self.observed, nothing))
            }
            None => None,
        };
        self.past = Some(Past { playback, present });
    }

    /// Whether the screen shows the past.
    pub(crate) fn is_past(&self) -> bool {
        self.past.is_some()
    }

    /// Whether a file is shown, which accepts no requests.
    pub(crate) fn is_replay(&self) -> bool {
        self.playback().is_some_and(|playback| playback.of == Of::File)
    }

    pub fn playback(&self) -> Option<&Playback> {
        self.past.as_ref().map(|past| &past.playback)
    }

    pub(crate) fn playback_mut(&mut self) -> Option<&mut Playback> {
        self.past.as_mut().map(|past| &mut past.playback)
    }

    fn present(&mut self) -> Option<&mut Observed> {
        self.past.as_mut()?.present.as_mut()
    }

    /// Sets the present time at the job whose past is shown.
    pub(crate) fn set_present_time(&mut self, now: Moment) {
        if let Some(present) = self.present() {
            present.now = now;
        }
    }

    /// Discards the state, but keeps the user's choices.
    pub(crate) fn forget(&mut self) {
        let nothing = Observed::at(self.observed.now);
        let gone = (replace(&mut self.observed, nothing), self.job_view.forget());
        // Freeing a thousand ranks would delay a jump noticeably, so another thread does it.
        let _ = thread::Builder::new().spawn(move || drop(gone));
        self.hosts.look_again();
    }

    pub(crate) fn go_live(&mut self) {
        if let Some(Past { present: Some(present), .. }) = self.past.take_if(|past| past.present.is_some()) {
            self.forget();
            // Findings from before the pause are not new.
            self.observed = present;
        }
    }

    pub(crate) fn found(&mut self, marks: Vec<Mark>, searched: Moment) {
        if let Some(playback) = self.playback_mut() {
            playback.marks.extend(marks);
            playback.searched = searched;
        }
    }

    pub(crate) fn reach(&mut self, moment: Moment) {
        self.observed.now = moment;
        if let Some(playback) = self.playback_mut() {
            playback.position = moment;
        }
    }

    /// Returns whether the arrival must not change the shown state: while the past is shown, arrivals change
    /// the present only; details of unwatched ranks change nothing.
    pub(crate) fn put_aside(&mut self, arrival: &Arrival) -> bool {
        let Arrival::Frame(frame) = arrival else { return false };
        if let Some(present) = self.present() {
            present.take(frame);
            return true;
        }
        matches!(&frame.body, Body::Detail(detail) if !self.watched.is_of(&detail.job, detail.rank))
    }
}
