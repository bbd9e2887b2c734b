//! Delivers the parts of traces, which threads read from the files, to the viewers.

use std::{
    io::{self, PipeReader, PipeWriter, Read as _},
    os::fd::AsRawFd as _,
};

use xpu_wire::frame::Body;

use super::{Answers, JobRank, Kineto};

/// Traces read at the same time, each by a thread.
const AT_ONCE: usize = 4;

pub(super) type Bell = (PipeReader, PipeWriter);

impl Kineto {
    /// A part, if it has been read. If too many traces are read, the request is queued.
    pub(super) fn part(&mut self, place: &JobRank, part: u32) -> Option<Body> {
        let written = self.ordered.values().filter_map(|ordered| ordered.written.as_ref());
        let at_once = written.filter(|written| written.is_being_read()).count();
        let ordered = self.ordered.get_mut(place)?;
        let is_being_read = ordered.written.as_ref()?.is_being_read();
        if part == 0 && !is_being_read && at_once >= AT_ONCE {
            self.queue.insert(place.clone(), part);
            return None;
        }
        if self.bell.is_none() {
            self.bell = make_bell()
                .inspect_err(|error| tracing::warn!("cannot make a pipe to read traces: {error}"))
                .ok();
        }
        let bell = match &self.bell {
            Some((_, bell)) => bell.try_clone(),
            None => Err(io::ErrorKind::NotConnected.into()),
        };
        ordered.part(part, place, || bell).map(Body::KinetoPart)
    }

    pub(super) fn hear_bell(&mut self) -> Answers {
        let Some((heard, _)) = &mut self.bell else { return Vec::new() };
        let mut rings = [0; 256];
        if !matches!(heard.read(&mut rings), Ok(1..)) {
            return Vec::new();
        }
        let awaited: Vec<_> = self
            .ordered
            .iter()
            .filter_map(|(place, ordered)| {
                let part = ordered.written.as_ref()?.awaited()?;
                Some((place.clone(), ordered.viewer.clone(), part))
            })
            .collect();
        let mut answers = Vec::new();
        for (place, viewer, part) in awaited {
            answers.extend(self.part(&place, part).map(|body| (viewer, body)));
        }
        answers.extend(self.serve_queue());
        answers
    }

    /// Starts the readings that had to wait.
    pub(super) fn serve_queue(&mut self) -> Answers {
        let mut answers = Vec::new();
        for (place, part) in std::mem::take(&mut self.queue) {
            let Some(viewer) = self.ordered.get(&place).map(|ordered| ordered.viewer.clone()) else {
                continue;
            };
            answers.extend(self.part(&place, part).map(|body| (viewer, body)));
        }
        answers
    }
}

fn make_bell() -> io::Result<Bell> {
    let (heard, bell) = io::pipe()?;
    // SAFETY: changes the flags of a descriptor this process owns.
    match unsafe { libc::fcntl(heard.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } {
        0 => Ok((heard, bell)),
        _ => Err(io::Error::last_os_error()),
    }
}
