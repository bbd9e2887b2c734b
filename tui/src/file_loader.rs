//! Lists and reads the captures and recordings of a folder on a separate thread, so a file system never
//! blocks the screen.

mod label;
mod simulated;
mod summary;
mod traces;

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::UNIX_EPOCH,
};

pub use label::{Label, What};
pub use simulated::Simulated;
pub use summary::Summary;
use tokio::sync::mpsc as queue;
use xpu_analysis::{
    export::{perfetto, timeline::Timeline},
    file, render,
};
use xpu_client::new_file;
use xpu_wire::unit::Moment;

/// Files listed, the newest first; the others are counted.
pub const FILES: usize = 256;

/// Entries of a folder that are examined: a folder of a million files is not read to its end.
const ENTRIES: usize = 65_536;

/// Endings of the listed files. Other programs also use the last one.
const ENDINGS: [&str; 4] = ["xpucap", "xpurec", "xpu", FOREIGN];
const FOREIGN: &str = "bin";

/// Number of orders that wait for the thread. Further ones are dropped, because the folder is read again
/// soon.
const WAITING: usize = 16;

/// Results that wait for the screen.
const NEWS: usize = 16;

/// A task of the thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// List the folder.
    List,
    /// Summarize a file.
    Open(PathBuf),
    /// Write a file's timeline for Perfetto next to the file.
    Export(PathBuf),
    /// Write a file's report as a page next to the file.
    Page(PathBuf),
    /// Simulate a file's steps without their stragglers.
    Simulate(PathBuf),
}

/// The result of a task.
#[derive(Clone, Debug)]
pub enum Loaded {
    Listed(Listing),
    /// The content of a file.
    Opened(PathBuf, Result<Box<Summary>, String>),
    /// What a step of a capture would take without its stragglers.
    Simulated(Option<Box<Simulated>>),
    /// A file was written, or writing failed.
    Written(Result<PathBuf, String>),
}

/// The files of the folder.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// When the folder was read, by the clock of file times.
    pub looked: Moment,
    /// Newest first.
    pub files: Vec<ListedFile>,
    /// The number of files beyond the limit.
    pub left_out: usize,
    /// Why the folder cannot be read.
    pub failure: Option<String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedFile {
    /// The path within the folder.
    pub path: PathBuf,
    pub bytes: u64,
    /// When it was last written, by this machine's clock.
    pub written: Moment,
    /// Its label, or why it cannot be read.
    pub label: Result<Label, String>,
}

/// The thread's handle; it ends when this is dropped.
#[derive(Debug)]
pub struct FileLoader {
    /// watch --Order--> the thread
    orders: mpsc::SyncSender<Order>,
}

impl FileLoader {
    /// A loader for this folder, and the receiver of its results.
    pub fn start(folder: PathBuf) -> (Self, queue::Receiver<Loaded>) {
        let (orders, ordered) = mpsc::sync_channel(WAITING);
        let (news, loaded) = queue::channel(NEWS);
        thread::spawn(move || {
            let mut reader = FolderReader::new(folder);
            while let Ok(order) = ordered.recv() {
                if news.blocking_send(reader.follow(order)).is_err() {
                    return;
                }
            }
        });
        (Self { orders }, loaded)
    }

    pub fn order(&self, order: Order) {
        let _ = self.orders.try_send(order);
    }
}

/// Does the work of the thread. Files that have not changed are not read again.
#[derive(Debug)]
pub struct FolderReader {
    folder: PathBuf,
    known: HashMap<PathBuf, ListedFile>,
}

impl FolderReader {
    pub fn new(folder: PathBuf) -> Self {
        Self { folder, known: HashMap::new() }
    }

    /// Executes the order, and returns the result.
    pub fn follow(&mut self, order: Order) -> Loaded {
        match order {
            Order::List => Loaded::Listed(self.list(Moment::now())),
            Order::Open(file) => {
                let summary = Summary::of(&self.folder.join(&file)).map(Box::new);
                Loaded::Opened(file, summary)
            }
            Order::Simulate(file) => Loaded::Simulated(Simulated::of(&self.folder.join(file)).map(Box::new)),
            Order::Export(file) => Loaded::Written(self.beside(&file, "pftrace", |capture, out| {
                Ok(perfetto::write(&Timeline::of(capture, None), out)?)
            })),
            Order::Page(file) => Loaded::Written(self.beside(&file, "html", |capture, out| {
                Ok(io::Write::write_all(out, render::page(capture).as_bytes())?)
            })),
        }
    }

    /// Writes a conversion of a capture to a new file with the same name and another ending.
    fn beside(
        &self,
        file: &Path,
        ending: &str,
        write: impl FnOnce(&xpu_analysis::capture::Capture, &mut io::BufWriter<fs::File>) -> anyhow::Result<()>,
    ) -> Result<PathBuf, String> {
        let out = file.with_extension(ending);
        let (capture, _) = file::open(&self.folder.join(file))
            .map_err(|why| format!("{} not written: {why}", out.display()))?;
        new_file::write(&self.folder.join(&out), |file| write(&capture, file))
            .map_err(|error| format!("{error:#}"))?;
        Ok(out)
    }

    fn list(&mut self, looked: Moment) -> Listing {
        let entries = match fs::read_dir(&self.folder) {
            Ok(entries) => entries,
            Err(error) => {
                let failure = Some(format!("this folder cannot be read: {error}"));
                return Listing { looked, failure, ..Listing::default() };
            }
        };
        let ending = |path: &Path| path.extension().and_then(OsStr::to_str).map(str::to_owned);
        let mut found: Vec<(PathBuf, u64, Moment)> = entries
            .take(ENTRIES)
            .flatten()
            .filter_map(|entry| {
                let ending = ending(Path::new(&entry.file_name()))?;
                let is_folder = ending == traces::ENDING;
                if !is_folder && !ENDINGS.contains(&&*ending) {
                    return None;
                }
                let about = fs::metadata(entry.path()).ok()?;
                let is_wanted = if is_folder { about.is_dir() } else { about.is_file() };
                let bytes = if is_folder { traces::bytes(&entry.path()) } else { about.len() };
                let since = about.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
                let written = Moment(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
                is_wanted.then(|| (entry.file_name().into(), bytes, written))
            })
            .collect();
        found.sort_by(|one, other| other.2.cmp(&one.2).then_with(|| one.0.cmp(&other.0)));
        let left_out = found.len().saturating_sub(FILES);
        found.truncate(FILES);
        let before = std::mem::take(&mut self.known);
        let mut files = Vec::new();
        for (path, bytes, written) in found {
            let same = |known: &&ListedFile| (known.bytes, known.written) == (bytes, written);
            let listed = before.get(&path).filter(same).cloned().unwrap_or_else(|| {
                let label = Label::of(&self.folder.join(&path));
                ListedFile { path: path.clone(), bytes, written, label }
            });
            self.known.insert(path, listed.clone());
            // Files with weight matrices also end in .bin. They are not broken recordings.
            if !(label::is_foreign(&listed.label) && listed.path.extension() == Some(OsStr::new(FOREIGN))) {
                files.push(listed);
            }
        }
        Listing { looked, files, left_out, failure: None }
    }
}

#[cfg(test)]
mod tests;
