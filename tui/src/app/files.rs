//! The captures and recordings: those that this screen makes, those in the folder, the selected one, and the
//! content of the opened one.

use std::{path::PathBuf, time::Duration};

use xpu_client::{kineto, screen_capture};
use xpu_model::what_if;
use xpu_wire::unit::Moment;

use super::{App, Note};
use crate::{
    file_loader::{ListedFile, Listing, Order, Simulated, Summary},
    recorder::RecorderState as Recording,
};

/// Interval of reading the folder while its page is open.
const AGAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub struct Files {
    pub(crate) recording: Recording,
    /// The latest capture.
    pub(crate) capture: screen_capture::CaptureState,
    /// Traces by PyTorch's profiler.
    pub(crate) kineto: kineto::Standing,
    /// `None` before the folder was first read.
    pub listing: Option<Listing>,
    selected: Option<PathBuf>,
    pub opened: Opened,
    asked: Option<Moment>,
    /// The capture that this screen has just made, until it is simulated.
    pub(crate) unsimulated: Option<PathBuf>,
    /// The result for it, and when it came.
    pub(crate) simulated: Option<(Moment, Box<Simulated>)>,
}

/// What is open below the list.
#[derive(Debug, Default)]
pub enum Opened {
    #[default]
    Nothing,
    /// The file is being read.
    Coming(PathBuf),
    Here(PathBuf, Result<Box<Summary>, String>),
}

impl Files {
    pub fn all(&self) -> &[ListedFile] {
        self.listing.as_ref().map_or(&[], |listing| &listing.files)
    }

    /// The index of the selected file: the first one, if none was chosen or the chosen one is gone.
    pub fn at(&self) -> usize {
        let chosen = |path: &PathBuf| self.all().iter().position(|file| file.path == *path);
        self.selected.as_ref().and_then(chosen).unwrap_or(0)
    }

    pub fn selected(&self) -> Option<&ListedFile> {
        self.all().get(self.at())
    }

    pub(crate) fn select(&mut self, index: usize) {
        self.selected = self.all().get(index).map(|file| file.path.clone());
    }

    /// Requests a reading of the folder, if it was not just read.
    pub(crate) fn due(&mut self, now: Moment) -> Option<Order> {
        let due = self.asked.is_none_or(|asked| now.since(asked) >= AGAIN || now < asked);
        due.then(|| {
            self.asked = Some(now);
            Order::List
        })
    }

    /// Requests a reading of the selected file.
    pub(crate) fn open(&mut self) -> Option<Order> {
        let path = self.selected()?.path.clone();
        self.opened = Opened::Coming(path.clone());
        Some(Order::Open(path))
    }

    /// A file was read. If it was closed meanwhile, it stays closed.
    pub(crate) fn came(&mut self, path: PathBuf, summary: Result<Box<Summary>, String>) {
        if matches!(&self.opened, Opened::Coming(wanted) if *wanted == path) {
            self.opened = Opened::Here(path, summary);
        }
    }

    /// `true` if something was open.
    pub(crate) fn close(&mut self) -> bool {
        !matches!(std::mem::take(&mut self.opened), Opened::Nothing)
    }
}

impl App {
    /// Reports the result of a capture once.
    pub(crate) fn captured(&mut self, state: screen_capture::CaptureState) {
        if self.files.capture == state {
            return;
        }
        match &state {
            screen_capture::CaptureState::Done(outcome) => {
                let note = if outcome.bytes == 0 { Note::Failed } else { Note::Done };
                self.messages.set_note(note(outcome.to_string()));
                self.files.unsimulated = (outcome.bytes > 0).then(|| outcome.path.clone());
                outcome
                    .complaints
                    .iter()
                    .for_each(|complaint| self.messages.warn(format!("capture: {complaint}")));
            }
            screen_capture::CaptureState::Failed(why) => self.messages.failed(why.clone()),
            _ => {}
        }
        self.files.capture = state;
    }

    /// What a step would take without its stragglers: by the last capture that was made here, or by the last
    /// one of `what-if --live` if that is newer.
    pub(crate) fn what_if(&self) -> Option<String> {
        let job = self.job()?;
        let here = self.files.simulated.as_ref().filter(|(_, simulated)| simulated.job == *job.name());
        let live = job.what_if().filter(|of| here.is_none_or(|(came, _)| of.at > *came && of.why.is_empty()));
        match live {
            // The first sentence is about all stragglers, the next about one of them.
            Some(of) => what_if::last(of).into_iter().take(2).next_back(),
            None => here.map(|(_, simulated)| simulated.sentence.clone()),
        }
    }

    /// What stragglers have cost the job, if `what-if --live` has captured it.
    pub(crate) fn what_if_sum(&self) -> Option<String> {
        what_if::sum(self.job()?.what_if()?, self.job_view.price)
    }

    /// Reports the result of traces once.
    pub(crate) fn traced(&mut self, state: kineto::Standing) {
        if self.files.kineto == state {
            return;
        }
        match &state {
            kineto::Standing::Done(outcome) => {
                let note = if outcome.is_whole { Note::Done } else { Note::Failed };
                self.messages.set_note(note(outcome.summary.clone()));
                outcome
                    .complaints
                    .iter()
                    .for_each(|complaint| self.messages.warn(format!("Kineto: {complaint}")));
            }
            kineto::Standing::Failed(why) => self.messages.failed(why.clone()),
            kineto::Standing::None | kineto::Standing::UnderWay(_) => {}
        }
        self.files.kineto = state;
    }
}
