//! The captures and recordings in the folder, the selected one, and the content of the opened one.

use std::{path::PathBuf, time::Duration};

use xpu_wire::unit::Moment;

use crate::file_loader::{ListedFile, Listing, Order, Simulated, Summary};

/// Interval of reading the folder while its page is open.
const AGAIN: Duration = Duration::from_secs(3);

#[derive(Debug, Default)]
pub struct Files {
    /// `None` before the folder was first read.
    pub listing: Option<Listing>,
    selected: Option<PathBuf>,
    pub opened: Opened,
    asked: Option<Moment>,
    /// The capture that this screen has just made, until it is simulated.
    pub(crate) captured: Option<PathBuf>,
    pub(crate) simulated: Option<Box<Simulated>>,
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
