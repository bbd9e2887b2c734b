//! Records the received frames: the last minutes in memory, and on request everything in a file. A separate
//! thread compresses and writes, so a file system never blocks the screen.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::{self, JoinHandle},
    time::Duration,
};

use xpu_client::new_file;
use xpu_recording::{Header, Packer, Recording, RecordingError, Ring, SealedBlock, Writer};
use xpu_wire::{
    codec,
    frame::{Body, Frame},
    id::{HostName, Rank},
    unit::Moment,
};

/// Largest size of the frames in memory.
const RING_BYTES: usize = 48 << 20;
const RING_LONG: Duration = Duration::from_mins(10);

/// Frames that may wait for the thread. Further frames are dropped, and counted in later frames.
const WAITING: usize = 4096;

/// Interval of checks whether a block is old enough to be closed.
const LOOK: Duration = Duration::from_millis(200);

/// The recorder's state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecorderState {
    /// The file being written.
    pub file: Option<Written>,
    /// The start of the recording in memory, and its size.
    pub kept: Option<(Moment, usize)>,
    /// Why the file is no longer written.
    pub failure: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    pub path: PathBuf,
    pub bytes: u64,
    pub frames: u64,
}

enum Order {
    Frame(Moment, Option<Rank>, Vec<u8>),
    Begin(PathBuf, Header),
    End,
    Ring(Header, mpsc::SyncSender<Result<Recording, RecordingError>>),
    Lately(Duration, mpsc::SyncSender<Vec<SealedBlock>>),
}

/// The thread's handle. When it is dropped, the file is closed.
#[derive(Debug)]
pub struct Recorder {
    /// watch --Order--> the thread
    orders: Option<mpsc::SyncSender<Order>>,
    state: Arc<Mutex<RecorderState>>,
    missed: HashMap<HostName, u64>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    pub fn start() -> Self {
        let (orders, ordered) = mpsc::sync_channel(WAITING);
        let state = Arc::new(Mutex::new(RecorderState::default()));
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || Keeper::new(shared).keep(&ordered));
        Self { orders: Some(orders), state, missed: HashMap::new(), thread: Some(thread) }
    }

    /// Keeps a frame that has just arrived.
    pub fn take(&mut self, now: Moment, frame: &Frame) {
        let Some(orders) = &self.orders else { return };
        let missed = self.missed.get(&frame.host).copied().unwrap_or(0);
        let bytes = match missed {
            0 => codec::encode(frame),
            missed => codec::encode(&Frame { lost: frame.lost.saturating_add(missed), ..frame.clone() }),
        };
        let rank = match &frame.body {
            Body::Detail(detail) => Some(detail.rank),
            _ => None,
        };
        if orders.try_send(Order::Frame(now, rank, bytes)).is_err() {
            *self.missed.entry(frame.host.clone()).or_default() += 1;
        }
    }

    /// Writes the frames in memory, and those from now on, to a new file.
    pub fn begin(&self, path: PathBuf, header: Header) {
        self.order(Order::Begin(path, header));
    }

    pub fn end(&self) {
        self.order(Order::End);
    }

    /// The last minutes, as a recording.
    pub fn past(&self, header: Header) -> Result<Recording, RecordingError> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.order(Order::Ring(header, reply));
        // Without a thread there is nothing in memory.
        answer.recv().unwrap_or(Err(RecordingError::Empty))
    }

    /// The frames of the last `long`, as far back as they are kept.
    pub fn lately(&self, long: Duration) -> Vec<SealedBlock> {
        let (reply, answer) = mpsc::sync_channel(1);
        self.order(Order::Lately(long, reply));
        answer.recv().unwrap_or_default()
    }

    pub fn state(&self) -> RecorderState {
        lock(&self.state).clone()
    }

    fn order(&self, order: Order) {
        if let Some(orders) = &self.orders {
            let _ = orders.send(order);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<RecorderState>) -> MutexGuard<'_, RecorderState> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The recorder's thread.
struct Keeper {
    packer: Packer,
    ring: Ring,
    file: Option<(PathBuf, Writer<File>)>,
    state: Arc<Mutex<RecorderState>>,
}

impl Keeper {
    fn new(state: Arc<Mutex<RecorderState>>) -> Self {
        Self { packer: Packer::default(), ring: Ring::new(RING_BYTES, RING_LONG), file: None, state }
    }

    fn keep(&mut self, orders: &mpsc::Receiver<Order>) {
        loop {
            match orders.recv_timeout(LOOK) {
                Ok(order) => self.follow(order),
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
            }
            let due = self.packer.due(Moment::now());
            self.store(due);
        }
        self.close_blocks();
        self.end();
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Frame(now, rank, bytes) => {
                let full =
                    self.packer.push_encoded(now, rank, &bytes).map(|block| block.into_iter().collect());
                self.store(full);
            }
            Order::Begin(path, header) => {
                self.close_blocks();
                if let Err(error) = self.begin(&path, &header) {
                    self.fail(&path, &error);
                }
            }
            Order::End => {
                self.close_blocks();
                self.end();
            }
            Order::Ring(header, reply) => {
                self.close_blocks();
                let _ = reply.send(self.ring.recording(&header));
            }
            Order::Lately(long, reply) => {
                self.close_blocks();
                let _ = reply.send(self.ring.since(long));
            }
        }
    }

    fn close_blocks(&mut self) {
        let rest = self.packer.rest();
        self.store(rest);
    }

    fn begin(&mut self, path: &Path, header: &Header) -> io::Result<()> {
        let mut writer = Writer::begin(new_file::create(path)?, header)?;
        for block in self.ring.blocks() {
            writer.write(block)?;
        }
        self.file = Some((path.to_owned(), writer));
        lock(&self.state).failure = None;
        self.publish_state();
        Ok(())
    }

    fn end(&mut self) {
        if let Some((path, writer)) = self.file.take()
            && let Err(error) = writer.finish().and_then(|(file, _)| file.sync_all())
        {
            self.fail(&path, &error);
        }
        self.publish_state();
    }

    fn store(&mut self, blocks: io::Result<Vec<SealedBlock>>) {
        let blocks = match blocks {
            Ok(blocks) if blocks.is_empty() => return,
            Ok(blocks) => blocks,
            // Compressing fails only if memory is short; then these frames are missing.
            Err(_short) => return,
        };
        for block in blocks {
            if let Some((path, writer)) = &mut self.file
                && let Err(error) = writer.write(&block)
            {
                let path = path.clone();
                self.file = None;
                self.fail(&path, &error);
            }
            self.ring.push(block);
        }
        self.publish_state();
    }

    fn fail(&self, path: &Path, error: &io::Error) {
        let failure = format!("not recorded to {}: {}", path.display(), new_file::why_not(error));
        let mut state = lock(&self.state);
        state.failure = Some(failure);
        state.file = None;
    }

    fn publish_state(&self) {
        let mut state = lock(&self.state);
        state.kept = self.ring.first().map(|first| (first, self.ring.bytes()));
        state.file = self.file.as_ref().map(|(path, writer)| {
            let totals = writer.totals();
            Written { path: path.clone(), bytes: totals.bytes, frames: totals.frames }
        });
    }
}
