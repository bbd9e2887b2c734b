//! Drops shown frames on a separate thread: dropping thousands of them would delay a jump noticeably.

use std::{
    mem,
    sync::{Arc, mpsc},
    thread,
};

use xpu_wire::frame::Frame;

/// Frames that are handed over together, because waking the thread for each frame takes time too.
const TOGETHER: usize = 128;

/// Batches that may wait for it.
const WAITING: usize = 32;

/// The thread's handle; the thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct DropThread {
    shown: Vec<Arc<Frame>>,
    /// player --shown--> thread
    out: mpsc::SyncSender<Vec<Arc<Frame>>>,
}

impl DropThread {
    pub(super) fn open() -> Self {
        let (out, gone) = mpsc::sync_channel(WAITING);
        // Without the thread there is no receiver, and frames are dropped where they are.
        let _ = thread::Builder::new().spawn(move || gone.iter().for_each(drop::<Vec<_>>));
        Self { shown: Vec::with_capacity(TOGETHER), out }
    }

    pub(super) fn take(&mut self, frame: Arc<Frame>) {
        self.shown.push(frame);
        if self.shown.len() == TOGETHER {
            // If it is behind, frames are dropped here.
            let _ = self.out.try_send(mem::replace(&mut self.shown, Vec::with_capacity(TOGETHER)));
        }
    }
}
