//! Events, and the marks that they leave on a stream.
//!
//! A mark is one recording of an event. An event may be recorded again while an earlier wait for it is still
//! queued, and that wait is for the earlier mark.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::capture::Capture;
use crate::clock::Moment;
use crate::lock;

/// One recording of an event, resolved once the stream knows when it is reached.
#[derive(Debug, Default)]
pub struct Mark {
    state: Mutex<State>,
    resolved: Condvar,
}

#[derive(Debug, Default)]
struct State {
    reached: Option<Moment>,
    /// Whether a thread blocks on the mark. Most marks have no waiter, and a needless wake-up costs a system
    /// call.
    awaited: bool,
}

impl Mark {
    pub fn resolve(&self, at: Moment) {
        let mut state = lock(&self.state);
        state.reached = Some(at);
        if state.awaited {
            self.resolved.notify_all();
        }
    }

    #[must_use]
    pub fn resolved(&self) -> Option<Moment> {
        lock(&self.state).reached
    }

    /// Blocks until the moment is known, which may be before the moment itself.
    pub fn wait_resolved(&self) -> Moment {
        let mut state = lock(&self.state);
        loop {
            if let Some(at) = state.reached {
                return at;
            }
            state.awaited = true;
            state = self.resolved.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// The last mark of an event.
#[derive(Clone, Debug)]
pub enum Last {
    Never,
    Recorded(Arc<Mark>),
    /// Recorded during a capture: a place in a graph, not a moment.
    Captured(Arc<Capture>),
}

#[derive(Debug)]
pub struct Event {
    /// The device whose streams may record it.
    pub device: i32,
    timed: bool,
    last: Mutex<Last>,
}

impl Event {
    #[must_use]
    pub fn new(timed: bool, device: i32) -> Self {
        Self { device, timed, last: Mutex::new(Last::Never) }
    }

    #[must_use]
    pub fn timed(&self) -> bool {
        self.timed
    }

    #[must_use]
    pub fn last(&self) -> Last {
        lock(&self.last).clone()
    }

    pub fn set_last(&self, last: Last) {
        *lock(&self.last) = last;
    }
}
