//! Runs work on a separate thread, one piece at a time. Its state can be read meanwhile.

use std::{
    sync::{Arc, Mutex, PoisonError, atomic::Ordering::Relaxed},
    thread::{self, JoinHandle},
};

use crate::capture::Stop;

#[derive(Debug, Default)]
pub(crate) struct Background<S> {
    state: State<S>,
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

/// Shared with the thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct State<S>(Arc<Mutex<S>>);

impl<S: Clone> State<S> {
    pub(crate) fn set(&self, state: S) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    fn get(&self) -> S {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Clone + Send + 'static> Background<S> {
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Requests the end of the work.
    pub(crate) fn end(&self) {
        self.stop.store(true, Relaxed);
    }

    /// Begins `work`. The state is `first` until `work` sets another, and finally what `work` returns.
    pub(crate) fn begin(&mut self, first: S, work: impl FnOnce(&State<S>, Stop) -> S + Send + 'static) {
        self.stop.store(false, Relaxed);
        self.state.set(first);
        let (state, stop) = (self.state.clone(), Stop::clone(&self.stop));
        self.thread = Some(thread::spawn(move || {
            let last = work(&state, stop);
            state.set(last);
        }));
    }

    pub(crate) fn state(&self) -> S {
        self.state.get()
    }
}

/// Ends the work, and waits for the end.
impl<S> Drop for Background<S> {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
