//! What was published in the last ten minutes: who comes later is given it, and knows what a viewer that was always there knows.
//!
//! It lies in memory, compressed, and in a recording in the runtime directory, from which a collector that takes over goes on.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use xpu_shared::{
    VERSION, codec,
    frame::{Body, Frame, History},
    id::JobName,
    recording::{Header, Packer, Recording, Ring, SealedBlock, Writer},
    unit::Moment,
};

/// How long what was published is kept.
const KEPT: Duration = Duration::from_mins(10);

/// And how much of it at most, compressed: a rank takes some 60 bytes a second.
const MOST_BYTES: usize = 32 << 20;

/// Digests of so long are compressed together. What is not yet on disk when a collector is killed is lost.
const BLOCK: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(crate) struct Past {
    packer: Packer,
    ring: Ring,
    file: Option<Store>,
}

impl Past {
    /// Goes on where the collector before it ended; without a file where none can be written.
    pub(crate) fn open(path: &Path, now: Moment) -> Self {
        let mut past = Self { packer: Packer::closing_after(BLOCK), ring: empty(), file: None };
        for file in [older(path), path.to_owned()] {
            past.read(&file, now);
        }
        let blocks = past.packer.rest().unwrap_or_default();
        for block in blocks {
            past.ring.push(block);
        }
        past.file = Store::begin(path, &past.ring, now).map_err(|error| complain(path, &error)).ok();
        past
    }

    fn read(&mut self, path: &Path, now: Moment) {
        // None was written here, or what was is of no use.
        let Ok(mut recording) = Recording::open_file(path) else { return };
        for entry in recording.entries().to_vec() {
            let Ok(Some(block)) = recording.block(&entry) else { continue };
            for record in block.records().filter(|record| now.since(record.at) < KEPT && record.at <= now) {
                let sealed = self.packer.push_encoded(record.at, None, record.frame).ok().flatten();
                if let Some(block) = sealed {
                    self.ring.push(block);
                }
            }
        }
    }

    /// Keeps what is published.
    pub(crate) fn keep(&mut self, frame: &[u8], now: Moment) {
        let sealed = self.packer.push_encoded(now, None, frame).ok().flatten();
        self.take(sealed);
    }

    /// Compresses and writes what is old enough.
    pub(crate) fn tend(&mut self, now: Moment) {
        let due = self.packer.due(now).unwrap_or_default();
        self.take(due);
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

    /// What was published of these jobs for so long, in parts.
    pub(crate) fn of(&mut self, jobs: &[(JobName, Moment)], length: Duration, now: Moment) -> Vec<History> {
        let rest = self.packer.rest().unwrap_or_default();
        self.take(rest);
        let mut parts = vec![History::default()];
        for block in self.ring.blocks().filter(|block| now.since(block.entry.last) <= length) {
            let Some(block) = block.open() else { continue };
            for record in block.records().filter(|record| now.since(record.at) <= length) {
                if !codec::decode(record.frame).is_ok_and(|frame| is_of(&frame, jobs)) {
                    continue;
                }
                if parts.last().is_some_and(|part| part.frames.len() + record.frame.len() > History::PART) {
                    parts.push(History::default());
                }
                if let Some(part) = parts.last_mut() {
                    part.frames.push(record.frame);
                }
            }
        }
        let last = parts.len() - 1;
        parts[..last].iter_mut().for_each(|part| part.more = true);
        parts
    }
}

/// Of one of the jobs as they are now: an earlier run of the same name is another job.
fn is_of(frame: &Frame, jobs: &[(JobName, Moment)]) -> bool {
    let job = match &frame.body {
        Body::Digest(digest) => &digest.job,
        Body::Event(event) => event.job(),
        _ => return false,
    };
    jobs.iter().any(|(name, started)| name == job && *started <= frame.now)
}

fn empty() -> Ring {
    Ring::new(MOST_BYTES, KEPT)
}

fn older(path: &Path) -> PathBuf {
    path.with_extension("old")
}

fn complain(path: &Path, error: &io::Error) {
    let path = path.display();
    tracing::warn!("the last minutes are kept in memory alone: cannot write {path}: {error}");
}

/// Two recordings, of which the older gives way when the newer spans [`KEPT`].
#[derive(Debug)]
struct Store {
    path: PathBuf,
    writer: Writer<File>,
    first: Moment,
}

impl Store {
    /// A file with what is known, which takes the place of those before.
    fn begin(path: &Path, known: &Ring, now: Moment) -> io::Result<Self> {
        let mut writer = create(path, now)?;
        for block in known.blocks() {
            writer.write(block)?;
        }
        // What was in it is in the new one.
        let _ = fs::remove_file(older(path));
        Ok(Self { path: path.to_owned(), writer, first: known.first().unwrap_or(now) })
    }

    fn write(&mut self, block: &SealedBlock) -> io::Result<()> {
        let is_full = self.writer.totals().bytes > MOST_BYTES as u64;
        if is_full || block.entry.first.since(self.first) > KEPT {
            fs::rename(&self.path, older(&self.path))?;
            self.writer = create(&self.path, block.entry.first)?;
            self.first = block.entry.first;
        }
        self.writer.write(block)
    }
}

/// Under another name first: whoever reads meanwhile finds a whole file.
fn create(path: &Path, now: Moment) -> io::Result<Writer<File>> {
    let new = path.with_extension("new");
    let _ = fs::remove_file(&new);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    let header = Header { made: now, by: VERSION.to_owned(), ..Header::default() };
    let writer = Writer::begin(file, &header)?;
    fs::rename(&new, path)?;
    Ok(writer)
}

#[cfg(test)]
mod tests {
    use xpu_shared::simulation::Simulation;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xpu-top-past-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn file(&self) -> PathBuf {
            self.0.join("history.xpurec")
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Publishes the digests of these seconds.
    fn publish(past: &mut Past, simulation: &Simulation, seconds: std::ops::Range<u64>) {
        for second in seconds {
            let now = Moment(second * SECOND);
            let frame = Frame { now, ..simulation.digests(second).remove(0) };
            past.keep(&codec::encode(&frame), now);
            past.tend(now);
        }
    }

    fn told(past: &mut Past, jobs: &[(JobName, Moment)], length: u64, now: u64) -> Vec<u64> {
        let parts = past.of(jobs, Duration::from_secs(length), Moment(now * SECOND));
        let frames: Vec<_> = parts.iter().flat_map(|part| part.frames.frames()).collect();
        assert!(parts[..parts.len() - 1].iter().all(|part| part.more) && !parts[parts.len() - 1].more);
        frames.iter().map(|frame| frame.now.0 / SECOND).collect()
    }

    #[test]
    fn who_comes_later_is_given_what_was_published_of_the_jobs_there_are() {
        let place = Place::new("given");
        let simulation = Simulation::new(1, 1, 8);
        let jobs = [(simulation.job.clone(), Moment(0))];
        let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
        publish(&mut past, &simulation, 1000..1100);
        assert_eq!(told(&mut past, &jobs, 60, 1099), (1039..1100).collect::<Vec<_>>());
        assert_eq!(told(&mut past, &jobs, 5, 1099), (1094..1100).collect::<Vec<_>>(), "once more, and less");
        assert_eq!(told(&mut past, &[("other".into(), Moment(0))], 60, 1099), Vec::<u64>::new());
        let again = [(simulation.job.clone(), Moment(1090 * SECOND))];
        assert_eq!(
            told(&mut past, &again, 60, 1099),
            (1090..1100).collect::<Vec<_>>(),
            "of an earlier run nothing"
        );
    }

    #[test]
    fn a_collector_that_takes_over_goes_on_and_reads_around_what_is_torn() {
        let place = Place::new("takes-over");
        let simulation = Simulation::new(1, 1, 8);
        let jobs = [(simulation.job.clone(), Moment(0))];
        let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
        publish(&mut past, &simulation, 1000..1065);
        // As if killed: what was not yet compressed is lost, and the last block is torn.
        drop(past);
        let file = OpenOptions::new().write(true).open(place.file()).unwrap();
        file.set_len(file.metadata().unwrap().len() - 7).unwrap();
        let mut past = Past::open(&place.file(), Moment(1070 * SECOND));
        publish(&mut past, &simulation, 1070..1080);
        let known = told(&mut past, &jobs, 600, 1080);
        assert_eq!(known.first(), Some(&1000));
        assert!(known.contains(&1040) && known.contains(&1079) && !known.contains(&1060), "{known:?}");
        drop(past);
        let mut past = Past::open(&place.file(), Moment(1655 * SECOND));
        let known = told(&mut past, &jobs, 600, 1655);
        assert!(known.iter().all(|second| *second >= 1055), "what is older is gone: {known:?}");
    }

    #[test]
    fn of_a_day_only_ten_minutes_stay_in_memory_and_twice_that_on_disk() {
        let place = Place::new("bounded");
        let simulation = Simulation::new(1, 1, 8);
        let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
        publish(&mut past, &simulation, 1000..1700);
        let (memory, disk) = (past.ring.bytes(), on_disk(&place));
        publish(&mut past, &simulation, 1700..8000);
        assert!(past.ring.bytes() < memory + memory / 4, "{} of {memory} bytes", past.ring.bytes());
        assert!(on_disk(&place) < 2 * disk + disk / 2, "{} of {disk} bytes", on_disk(&place));
        println!("a rank takes {} bytes a second", memory / 600 / 8);
    }

    fn on_disk(place: &Place) -> u64 {
        fs::read_dir(&place.0).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
    }

    #[test]
    fn where_nothing_can_be_written_the_past_is_in_memory() {
        let simulation = Simulation::new(1, 1, 2);
        let jobs = [(simulation.job.clone(), Moment(0))];
        let mut past = Past::open(Path::new("/proc/self/nowhere/history.xpurec"), Moment(1000 * SECOND));
        publish(&mut past, &simulation, 1000..1010);
        assert_eq!(told(&mut past, &jobs, 60, 1010).len(), 10);
    }
}
