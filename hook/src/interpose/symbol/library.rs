//! A monitored library: which of its copies in the process is monitored, and what is not monitored.

use std::{
    ffi::CStr,
    sync::atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed},
    },
};

use super::{Name, Object};

/// Instead of a home: the monitored copy was unloaded. The state of that copy (events, handles) is gone, so
/// no other copy is monitored.
pub(super) const GONE: usize = usize::MAX;

/// A library whose functions are interposed or called.
#[derive(Debug)]
pub(crate) struct Library {
    /// Its name in messages.
    name: &'static str,
    /// A function that every copy has. Other preloads that interpose some functions do not have this one.
    pub(super) marker: Name<'static>,
    /// Prefix of its file names; empty if lookups of its functions are not replaced.
    files: &'static str,
    /// Load address of the monitored copy; 0 before the first call.
    pub(super) home: AtomicUsize,
    /// Number of calls to other copies.
    pub(super) elsewhere: AtomicU64,
    /// Whether some of these calls may be to the monitored copy.
    pub(super) unsure: AtomicBool,
}

impl Library {
    pub(crate) const fn new(name: &'static str, marker: &'static CStr) -> Self {
        Self {
            name,
            marker: Name::new(marker),
            files: "",
            home: AtomicUsize::new(0),
            elsewhere: AtomicU64::new(0),
            unsure: AtomicBool::new(false),
        }
    }

    /// Sets the prefix of its file names: lookups of its functions then get the interposed ones.
    pub(crate) const fn in_files(mut self, files: &'static str) -> Self {
        self.files = files;
        self
    }

    /// Whether this object is a copy of the library, by its file name and symbols.
    pub(crate) fn is_in(&self, object: &Object) -> bool {
        !self.files.is_empty()
            && object.file_name().starts_with(self.files.as_bytes())
            && object.find(&self.marker).is_some()
    }

    /// What is not monitored, and why.
    pub(crate) fn complaints(&self) -> impl Iterator<Item = String> {
        let elsewhere = self.elsewhere.load(Relaxed);
        let name = self.name;
        let why = if self.unsure.load(Relaxed) {
            "for some callers it is unknown which copy they use"
        } else {
            "only the one that was called first is watched"
        };
        let second = (elsewhere > 0).then(|| {
            format!("{elsewhere} calls not watched: the process has several copies of {name}, and {why}")
        });
        let gone = (self.home.load(Relaxed) == GONE)
            .then(|| format!("no longer watched: the program unloaded {name}"));
        second.into_iter().chain(gone)
    }

    /// Number of calls to other copies.
    pub(crate) fn elsewhere(&self) -> u64 {
        self.elsewhere.load(Relaxed)
    }

    /// Whether this object is the monitored copy; the first object becomes it.
    pub(super) fn is_home(&self, object: usize) -> bool {
        match self.home.compare_exchange(0, object, AcqRel, Acquire) {
            Ok(_) => true,
            Err(home) => home == object,
        }
    }
}
