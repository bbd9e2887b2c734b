//! One tier of published digests, in memory and in a file.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use xpu_recording::{Header, Packer, Recording, Ring, SealedBlock, Writer};
use xpu_wire::{
    VERSION, codec,
    frame::{Body, Frame},
    unit::Moment,
};

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extent {
    pub kept: Duration,
    /// Limit of the compressed bytes in memory. The file takes at most twice as many.
    pub most_bytes: usize,
    /// Frames of this time are compressed together.
    pub block: Duration,
}

#[derive(Debug)]
pub(super) struct Tier {
    extent: Extent,
    packer: Packer,
    ring: Ring,
    file: Option<Store>,
}

impl Tier {
    /// Opens the tier with the content of its file.
    pub(super) fn open(path: &Path, extent: Extent, now: Moment) -> Self {
        let ring = Ring::new(extent.most_bytes, extent.kept);
        let mut tier = Self { extent, packer: Packer::closing_after(extent.block), ring, file: None };
        for file in [older(path), path.to_owned()] {
            tier.read(&file, now);
        }
        tier.settle();
        tier.file = Store::begin(path, extent, &tier.ring, now).map_err(|error| complain(path, &error)).ok();
        tier
    }

    fn read(&mut self, path: &Path, now: Moment) {
        // There is no file, or it cannot be read.
        let Ok(mut recording) = Recording::open_file(path) else { return };
        for entry in recording.entries().to_vec() {
            let Ok(Some(block)) = recording.block(&entry) else { continue };
            for record in block.records() {
                if now.since(record.at) < self.extent.kept && record.at <= now {
                    self.keep(record.frame, record.at);
                }
            }
        }
    }

    pub(super) fn keep(&mut self, frame: &[u8], now: Moment) {
        let sealed = self.packer.push_encoded(now, None, frame).ok().flatten();
        self.take(sealed);
    }

    /// Compresses and writes what is old enough.
    pub(super) fn tend(&mut self, now: Moment) {
        let due = self.packer.due(now).unwrap_or_default();
        self.take(due);
    }

    /// Compresses and writes everything.
    pub(super) fn settle(&mut self) {
        let rest = self.packer.rest().unwrap_or_default();
        self.take(rest);
    }

    fn take(&mut self, blocks: impl IntoIterator<Item = SealedBlock>) {
        for block in blocks {
            let written = self.file.as_mut().map(|file| (file.path.clone(), file.write(&block)));
            if let Some((path, Err(error))) = written {
                complain(&path, &error);
                self.file = None;
            }
            self.ring.push(block);
        }
    }

    /// Passes each frame to `see`, oldest first.
    pub(super) fn each(&self, mut see: impl FnMut(&Frame, &[u8])) {
        for block in self.ring.blocks().filter_map(SealedBlock::open) {
            for record in block.records() {
                if let Ok(frame) = codec::decode(record.frame) {
                    see(&frame, record.frame);
                }
            }
        }
    }

    /// When the oldest compressed frame arrived.
    pub(super) fn first(&self) -> Option<Moment> {
        self.ring.first()
    }

    /// When the newest digest was made.
    pub(super) fn newest(&self) -> Moment {
        let mut newest = Moment::default();
        self.each(|frame, _| {
            if matches!(frame.body, Body::Digest(_)) {
                newest = newest.max(frame.now);
            }
        });
        newest
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.ring.bytes()
    }
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("old")
}

fn complain(path: &Path, error: &io::Error) {
    let path = path.display();
    tracing::warn!("cannot write {path}: {error}; the history is kept only in memory");
}

/// Two recordings. The older is dropped when the newer spans the time to keep.
#[derive(Debug)]
struct Store {
    path: PathBuf,
    extent: Extent,
    writer: Writer<File>,
    first: Moment,
}

impl Store {
    /// Begins a new file with the known frames, which replaces the older files.
    fn begin(path: &Path, extent: Extent, known: &Ring, now: Moment) -> io::Result<Self> {
        let mut writer = create(path, now)?;
        for block in known.blocks() {
            writer.write(block)?;
        }
        // The new file has its content.
        let _ = fs::remove_file(older(path));
        Ok(Self { path: path.to_owned(), extent, writer, first: known.first().unwrap_or(now) })
    }

    fn write(&mut self, block: &SealedBlock) -> io::Result<()> {
        let is_full = self.writer.totals().bytes > self.extent.most_bytes as u64;
        if is_full || block.entry.first.since(self.first) > self.extent.kept {
            fs::rename(&self.path, older(&self.path))?;
            self.writer = create(&self.path, block.entry.first)?;
            self.first = block.entry.first;
        }
        self.writer.write(block)
    }
}

/// Creates the file under another name first, so that readers always find a whole file.
fn create(path: &Path, now: Moment) -> io::Result<Writer<File>> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let header = Header { made: now, by: VERSION.to_owned(), ..Header::default() };
    let writer = Writer::begin(file, &header)?;
    fs::rename(&new, path)?;
    Ok(writer)
}
