//! Finds the file that a Kineto writes, checks whether it is complete, and reads it in parts on a separate
//! thread.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, PipeWriter, Read, Write},
    os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel},
    thread,
};

use flate2::{Compression, write::GzEncoder};
use xpu_wire::frame::{KinetoBytes, KinetoEnd, KinetoPart};

use super::scan::Scan;

/// Kineto's folder, unless the job sets another.
const USUAL: &str = "/tmp";
/// The variable for another folder. Since June 2026, Kineto writes only below that folder.
const ALLOWED: &str = "KINETO_ONDEMAND_TRACE_DIR";

/// The last key of a complete trace, and its largest distance from the end.
const LAST_KEY: &[u8] = b"\"traceName\"";
const TAIL: u64 = 4096;

/// Parts read ahead.
const AHEAD: usize = 1;

/// Bytes read at once.
const PIECE: usize = 1 << 16;

/// A fast compression level: speed matters more than size, so that the trace leaves the host sooner.
const LEVEL: Compression = Compression::new(3);

/// The path of one rank's trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// The path given to Kineto, which inserts its process id before the extension.
    pub log_file: String,
    /// The path as seen from here.
    seen: PathBuf,
    /// The same path in this program's view of the file system, used once the process has ended.
    plain: PathBuf,
    owner: u32,
}

impl Place {
    /// The place for the process `pid` of this user; `own` is its id in its own namespace.
    pub(super) fn of(pid: u32, own: u32, owner: u32, stem: &str) -> Self {
        let folder = variable(pid, ALLOWED).filter(|folder| folder.starts_with('/'));
        let folder = folder.as_deref().unwrap_or(USUAL).trim_end_matches('/');
        let plain = PathBuf::from(format!("{folder}/{stem}_{own}.json"));
        let below = plain.strip_prefix("/").unwrap_or(&plain);
        Self {
            log_file: format!("{folder}/{stem}.json"),
            seen: Path::new("/proc").join(pid.to_string()).join("root").join(below),
            plain,
            owner,
        }
    }

    fn paths(&self) -> [&Path; 2] {
        [&self.seen, &self.plain]
    }

    /// Whether Kineto has begun to write the trace.
    pub(super) fn is_begun(&self) -> bool {
        let is_there = |path: &Path| path.symlink_metadata().is_ok();
        self.paths().into_iter().any(|path| is_there(&before_it_is_whole(path)) || is_there(path))
    }

    /// The trace, once it is complete. Opens only the user's own file, and no link.
    pub(super) fn open(&self) -> Option<File> {
        self.paths().into_iter().find_map(|path| {
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;
            let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
            let found = file.metadata().ok()?;
            (found.is_file() && found.uid() == self.owner && is_whole(&file, found.len())).then_some(file)
        })
    }

    /// Removes the file; for a link, only the link.
    pub(super) fn remove(&self) {
        for path in self.paths() {
            let _ = fs::remove_file(path);
            let _ = fs::remove_file(before_it_is_whole(path));
        }
    }
}

/// The name under which newer versions of Kineto write the trace until it is complete.
fn before_it_is_whole(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".tmp");
    name.into()
}

/// Whether the trace is complete. Older versions of Kineto write in place, so the last key shows it.
fn is_whole(file: &File, length: u64) -> bool {
    let mut tail = vec![0; length.min(TAIL) as usize];
    let begin = length - tail.len() as u64;
    let read = file.read_exact_at(&mut tail, begin);
    let text = tail.trim_ascii_end();
    read.is_ok() && text.ends_with(b"}") && text.windows(LAST_KEY.len()).any(|piece| piece == LAST_KEY)
}

/// Whether a process's initial environment is there: a program that changes its title may have overwritten it.
pub(super) fn has_variables(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| all.contains(&b'='))
}

/// A variable in a process's initial environment.
pub(super) fn variable(pid: u32, name: &str) -> Option<String> {
    let all = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |line: &[u8]| Some(line.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    let found = all.split(|&byte| byte == 0).find_map(value)?;
    String::from_utf8(found).ok().filter(|value| !value.is_empty())
}

/// A part; the last one comes with the statistics of the whole trace.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub bytes: KinetoBytes,
    pub end: Option<KinetoEnd>,
}

/// A trace being read. At most one part is read ahead.
#[derive(Debug)]
pub(super) struct Reading {
    pieces: Receiver<Piece>,
    /// The last part sent, in case it was lost, and the number of the next part.
    last: Option<Piece>,
    next: u32,
    /// Whether a requester waits for the next part.
    pub wanted: bool,
}

impl Reading {
    /// Begins to read. Each part writes to `bell`.
    pub(super) fn begin(file: &File, bell: PipeWriter) -> io::Result<Self> {
        // The file is read by position, because an abandoned reading may still be running and share the
        // file's offset.
        let file = Placed { file: file.try_clone()?, at: 0 };
        let (sender, pieces) = sync_channel(AHEAD);
        thread::Builder::new().name("kineto trace".to_owned()).spawn(move || read(file, sender, bell))?;
        Ok(Self { pieces, last: None, next: 0, wanted: false })
    }

    pub(super) fn has_ended(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.end.is_some())
    }

    /// The part of this number, if it has been read. Only the last sent part and the next part are available.
    pub(super) fn part(&mut self, part: u32) -> Option<Piece> {
        if part.checked_add(1) == Some(self.next) {
            return self.last.clone();
        }
        (part == self.next).then_some(())?;
        match self.pieces.try_recv() {
            Ok(piece) => {
                (self.last, self.wanted) = (Some(piece), false);
                self.next += 1;
                self.last.clone()
            }
            Err(TryRecvError::Empty) => {
                self.wanted = true;
                None
            }
            Err(TryRecvError::Disconnected) => {
                let wrong = Some("reading it stopped part-way".to_owned());
                Some(Piece {
                    bytes: KinetoBytes::default(),
                    end: Some(KinetoEnd { wrong, ..KinetoEnd::default() }),
                })
            }
        }
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }
}

/// A file read from its begin, independent of its other readers.
struct Placed {
    file: File,
    at: u64,
}

impl Read for Placed {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let length = self.file.read_at(bytes, self.at)?;
        self.at += length as u64;
        Ok(length)
    }
}

fn read(mut file: Placed, pieces: SyncSender<Piece>, bell: PipeWriter) {
    let mut scan = Scan::default();
    let mut packer = GzEncoder::new(Parts { pieces, bell, bytes: Vec::new() }, LEVEL);
    let outcome = copy(&mut file, &mut packer, &mut scan).and_then(|()| packer.try_finish());
    let mut end = scan.finish();
    end.wrong = outcome.err().map(|error| format!("it could not be read to its end: {error}"));
    let _ = packer.get_mut().send(Some(end));
}

fn copy(from: &mut impl Read, to: &mut impl Write, scan: &mut Scan) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        match from.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => {
                scan.take(&piece[..length]);
                to.write_all(&piece[..length])?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Passes written data on, in parts of one size.
struct Parts {
    pieces: SyncSender<Piece>,
    bell: PipeWriter,
    bytes: Vec<u8>,
}

impl Parts {
    /// Waits until the previous part was taken. Fails if the receiver is gone.
    fn send(&mut self, end: Option<KinetoEnd>) -> io::Result<()> {
        let piece = Piece { bytes: KinetoBytes(std::mem::take(&mut self.bytes)), end };
        self.pieces.send(piece).map_err(|_unwanted| io::Error::from(io::ErrorKind::BrokenPipe))?;
        // The poll loop reads several bytes as one signal.
        let _ = self.bell.write(&[0]);
        Ok(())
    }
}

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let free = KinetoPart::BYTES - self.bytes.len();
        let taken = bytes.len().min(free);
        self.bytes.extend_from_slice(&bytes[..taken]);
        if self.bytes.len() == KinetoPart::BYTES {
            self.send(None)?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
