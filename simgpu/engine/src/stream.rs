//! A stream: operations in order, each with a computed start and end.
//!
//! An operation whose end is known at once, such as a kernel on an idle stream, is resolved on the launching
//! thread. Only operations that wait for another rank or stream, and those queued behind them, go to the
//! stream's own thread. The first such operation starts that thread.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::{
    capture::Capture,
    clock::Moment,
    event::{Event, Last, Mark},
    gauge, lock,
    op::{Node, Op},
    resident,
    trace::{self, Task, Traced},
    worker,
};

/// How many unfinished operations a stream holds. As on a real GPU, the next launch waits until one has
/// ended.
const DEPTH: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The stream with the handle NULL.
    Legacy,
    /// Made by a program. On a real GPU it synchronises with the legacy stream.
    Blocking,
    NonBlocking,
}

#[derive(Debug)]
pub struct Stream {
    pub id: u64,
    pub device: i32,
    pub kind: Kind,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The end of the last resolved operation.
    tail: Moment,
    /// The ends of resolved operations that the wall clock had not reached at the last check.
    ends: VecDeque<Moment>,
    queue: VecDeque<Queued>,
    worker: Worker,
    capture: Option<Arc<Capture>>,
    closed: bool,
}

/// An operation, and when it was launched.
#[derive(Debug)]
struct Queued {
    submitted: Moment,
    op: Op,
    task: Option<Task>,
    traced: Option<Traced>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Worker {
    #[default]
    None,
    Idle,
    Busy,
}

impl State {
    fn settled(&self) -> bool {
        self.queue.is_empty() && self.worker != Worker::Busy
    }

    fn ended(&mut self, end: Moment) {
        self.tail = end;
        self.ends.push_back(end);
    }
}

impl Stream {
    #[must_use]
    pub fn new(id: u64, device: i32, kind: Kind) -> Arc<Self> {
        Arc::new(Self { id, device, kind, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Does the work, or records it in the graph while the stream is being captured.
    ///
    /// # Errors
    /// When the stream's thread cannot be started.
    pub fn submit(self: &Arc<Self>, node: Node) -> io::Result<()> {
        if let Some(capture) = self.capture() {
            capture.add(node);
            return Ok(());
        }
        let task = node.task();
        self.push(node.into(), Some(task))
    }

    /// # Errors
    /// When the stream's thread cannot be started.
    pub fn record(self: &Arc<Self>, event: &Event) -> io::Result<()> {
        if let Some(capture) = self.capture() {
            event.set_last(Last::Captured(capture));
            return Ok(());
        }
        let mark = Arc::new(Mark::default());
        event.set_last(Last::Recorded(Arc::clone(&mark)));
        self.push(Op::Record(mark), None)
    }

    /// # Errors
    /// When the stream's thread cannot be started.
    pub fn wait(self: &Arc<Self>, mark: Arc<Mark>) -> io::Result<()> {
        self.push(Op::Wait(mark), None)
    }

    /// Blocks until the wall clock has reached the end of everything submitted so far.
    ///
    /// # Errors
    /// When the stream's thread cannot be started.
    pub fn synchronize(self: &Arc<Self>) -> io::Result<()> {
        let mark = Arc::new(Mark::default());
        self.push(Op::Record(Arc::clone(&mark)), None)?;
        mark.wait_resolved().sleep_until();
        Ok(())
    }

    #[must_use]
    pub fn is_done(&self, now: Moment) -> bool {
        let state = lock(&self.state);
        state.settled() && state.tail <= now
    }

    #[must_use]
    pub fn capture(&self) -> Option<Arc<Capture>> {
        lock(&self.state).capture.clone()
    }

    pub fn set_capture(&self, capture: Option<Arc<Capture>>) {
        lock(&self.state).capture = capture;
    }

    /// The program has destroyed the stream: queued work still runs, then the thread ends.
    pub fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    fn push(self: &Arc<Self>, op: Op, task: Option<Task>) -> io::Result<()> {
        let traced = trace::launched(task);
        let mut state = lock(&self.state);
        let now = loop {
            let now = Moment::now();
            while state.ends.front().is_some_and(|end| *end <= now) {
                state.ends.pop_front();
            }
            if state.ends.len() + state.queue.len() < DEPTH {
                break now;
            }
            if let Some(end) = state.ends.front().copied() {
                drop(state);
                end.sleep_until();
                state = lock(&self.state);
            } else {
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        };
        if state.settled() && op.is_ready() {
            let end = self.run(op, now.max(state.tail), task, traced);
            state.ended(end);
            return Ok(());
        }
        if state.worker == Worker::None {
            let stream = Arc::clone(self);
            worker::spawn("simgpu-stream", move || stream.work())?;
            state.worker = Worker::Idle;
        }
        state.queue.push_back(Queued { submitted: now, op, task, traced });
        if state.worker == Worker::Idle {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Runs an operation, and shows outside that the device is busy.
    fn run(&self, op: Op, start: Moment, task: Option<Task>, traced: Option<Traced>) -> Moment {
        let resident = task.and_then(|task| resident::begin(self.device, task, start));
        let place = gauge::mine(self.device).filter(|_| op.is_work());
        let end = match (place, op, task) {
            (Some(place), Op::Work(alone), Some(Task::Kernel(_))) => {
                let end = start.after(place.shared(Moment::now(), alone));
                place.ran(start, end, alone);
                end
            }
            (Some(place), op, _) => {
                let end = place.while_waiting(|| op.run(start));
                place.ran(start, end, end.since(start));
                end
            }
            (None, op, _) => op.run(start),
        };
        if let Some(resident) = resident {
            resident.ends(end);
        }
        if let Some(traced) = traced {
            traced.ran(self.id, self.device, start, end);
        }
        end
    }

    fn work(&self) {
        let mut state = lock(&self.state);
        loop {
            let Some(Queued { submitted, op, task, traced }) = state.queue.pop_front() else {
                if state.closed {
                    return;
                }
                state.worker = Worker::Idle;
                state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.worker = Worker::Busy;
            let start = submitted.max(state.tail);
            drop(state);
            let end = self.run(op, start, task, traced);
            state = lock(&self.state);
            state.ended(end);
            if state.queue.len() + 1 >= DEPTH {
                self.changed.notify_all();
            }
        }
    }
}

#[cfg(test)]
mod tests;
