//! Fetches traces: one part per rank at a time, several ranks at once, each into its own file.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;
use xpu_wire::{
    frame::{KinetoEnd, KinetoOrder, KinetoPart, KinetoWindow},
    id::{HostName, Rank},
};

use super::{ranks::Ranks, traced::Traced};
use crate::new_file;

/// Ranks whose parts are requested at the same time: at most this many parts are in memory.
const AT_ONCE: usize = 8;

/// A part that has not come within this time is requested again: the request or the part may have been lost.
const AGAIN: Duration = Duration::from_secs(3);

/// A rank that is silent for this long no longer delays others.
const STALLED: Duration = Duration::from_secs(5);

/// A rank silent for this long is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// The file for a rank's trace.
pub(super) fn path(folder: &Path, rank: Rank) -> PathBuf {
    folder.join(name(rank))
}

pub(super) fn name(rank: Rank) -> String {
    format!("rank-{:04}.json.gz", rank.process().0)
}

#[derive(Debug)]
pub(super) struct Fetch {
    folder: PathBuf,
    /// Whether the traces are of a period, whose true length is to be read.
    is_timed: bool,
    under_way: BTreeMap<Rank, UnderWay>,
    done: BTreeMap<Rank, Fetched>,
}

#[derive(Debug)]
struct UnderWay {
    file: File,
    /// The next part, when it was requested, and when the previous one came.
    next: u32,
    asked: Option<Instant>,
    heard: Instant,
    bytes: u64,
    /// Reads the trace's period; `None` if that is not wanted, or failed.
    traced: Option<Traced>,
}

/// A complete trace, or why there is none.
#[derive(Clone, Debug)]
pub(super) struct Fetched {
    /// Size of the compressed file.
    pub bytes: u64,
    pub end: KinetoEnd,
    /// The length of the period that the trace covers, if the traces are of a period.
    pub traced: Option<Duration>,
    pub why: Option<String>,
}

/// A part to ask for.
#[derive(Debug)]
pub(super) struct Due {
    pub(super) host: HostName,
    pub(super) rank: Rank,
    pub(super) part: u32,
}

impl Fetch {
    pub(super) fn new(folder: &Path) -> Self {
        let (under_way, done) = (BTreeMap::new(), BTreeMap::new());
        Self { folder: folder.to_owned(), is_timed: false, under_way, done }
    }

    pub(super) fn begin_for(&mut self, order: &KinetoOrder) {
        self.is_timed = matches!(order.window, KinetoWindow::Time { .. });
    }

    /// Parts to request now, each with its rank.
    pub(super) fn due(&mut self, ranks: &Ranks, now: Instant) -> Vec<Due> {
        self.begin(ranks, now);
        self.fail_stalled(now);
        let is_due = |fetch: &UnderWay| fetch.asked.is_none_or(|asked| now.duration_since(asked) >= AGAIN);
        let mut due = Vec::new();
        for (rank, one) in ranks.iter() {
            let Some(fetch) = self.under_way.get_mut(&rank).filter(|fetch| is_due(fetch)) else { continue };
            if let Some(host) = &one.host {
                fetch.asked = Some(now);
                due.push(Due { host: host.clone(), rank, part: fetch.next });
            }
        }
        due
    }

    fn begin(&mut self, ranks: &Ranks, now: Instant) {
        let is_busy = |fetch: &&UnderWay| now.duration_since(fetch.heard) < STALLED;
        let mut busy = self.under_way.values().filter(is_busy).count();
        for (rank, one) in ranks.iter() {
            let is_new = !self.under_way.contains_key(&rank) && !self.done.contains_key(&rank);
            if busy >= AT_ONCE || !is_new || ranks.word(one).0 != "written" {
                continue;
            }
            match new_file::create(&path(&self.folder, rank)) {
                Ok(file) => {
                    busy += 1;
                    let traced = self.is_timed.then(Traced::default);
                    let fetch = UnderWay { file, next: 0, asked: None, heard: now, bytes: 0, traced };
                    self.under_way.insert(rank, fetch);
                }
                Err(error) => {
                    let why = format!("cannot write {}: {}", name(rank), new_file::why_not(&error));
                    self.fail(rank, why);
                }
            }
        }
    }

    fn fail_stalled(&mut self, now: Instant) {
        let late = |fetch: &UnderWay| now.duration_since(fetch.heard) >= PATIENCE;
        let lost: Vec<_> =
            self.under_way.iter().filter(|(_, fetch)| late(fetch)).map(|(&rank, _)| rank).collect();
        for rank in lost {
            self.drop_file(rank, "its trace stopped arriving: check that its host is reachable");
        }
    }

    fn drop_file(&mut self, rank: Rank, why: &str) {
        if self.under_way.remove(&rank).is_some() {
            // The next attempt may use this name.
            let _ = fs::remove_file(path(&self.folder, rank));
        }
        self.fail(rank, why.to_owned());
    }

    fn fail(&mut self, rank: Rank, why: String) {
        self.done.insert(rank, Fetched { bytes: 0, end: KinetoEnd::default(), traced: None, why: Some(why) });
    }

    /// Takes an arriving part, if it is the awaited one. If it cannot be written, only its rank fails: others
    /// may still fit on a full disk.
    pub(super) fn take(&mut self, part: &KinetoPart) {
        let Some(fetch) = self.under_way.get_mut(&part.rank).filter(|fetch| fetch.next == part.part) else {
            return;
        };
        if let Err(error) = fetch.file.write_all(&part.bytes.0) {
            let why = format!("cannot write {}: {}", name(part.rank), new_file::why_not(&error));
            self.drop_file(part.rank, &why);
            return;
        }
        fetch.bytes += part.bytes.0.len() as u64;
        if fetch.traced.as_mut().is_some_and(|traced| traced.take(&part.bytes.0).is_err()) {
            fetch.traced = None;
        }
        (fetch.next, fetch.asked, fetch.heard) = (fetch.next + 1, None, Instant::now());
        if let Some(end) = &part.end {
            if let Some(wrong) = &end.wrong {
                self.drop_file(part.rank, wrong);
            } else {
                let (bytes, traced) = (fetch.bytes, fetch.traced.take().and_then(Traced::finish));
                self.under_way.remove(&part.rank);
                self.done.insert(part.rank, Fetched { bytes, end: end.clone(), traced, why: None });
            }
        }
    }

    /// The complete traces.
    pub(super) fn done(&self) -> usize {
        self.done.values().filter(|fetched| fetched.why.is_none()).count()
    }

    pub(super) fn has_all(&self, ranks: &Ranks) -> bool {
        ranks.iter().all(|(rank, one)| ranks.word(one).0 != "written" || self.done.contains_key(&rank))
    }

    pub(super) fn of(&self, rank: Rank) -> Option<&Fetched> {
        self.done.get(&rank)
    }

    /// Gives up the missing traces.
    pub(super) fn give_up(&mut self) {
        for rank in self.under_way.keys().copied().collect::<Vec<_>>() {
            self.drop_file(rank, "its trace was not fetched completely in time: allow more with --wait");
        }
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{frame::KinetoBytes, id::JobName};

    use super::*;

    #[test]
    fn a_trace_that_cannot_be_written_fails_its_rank_and_no_other() {
        let folder = std::env::temp_dir().join(format!("xpu-top-full-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let mut fetch = Fetch::new(&folder);
        let full = File::options().write(true).open("/dev/full").unwrap();
        let fits = new_file::create(&path(&folder, Rank(1))).unwrap();
        fs::write(path(&folder, Rank(0)), "").unwrap();
        for (rank, file) in [(0, full), (1, fits)] {
            let heard = Instant::now();
            let under_way = UnderWay { file, next: 0, asked: None, heard, bytes: 0, traced: None };
            fetch.under_way.insert(Rank(rank), under_way);
        }
        let part = |rank, part, end| KinetoPart {
            number: 7,
            job: JobName::cleaned("train"),
            rank: Rank(rank),
            part,
            bytes: KinetoBytes(vec![1; 100]),
            end,
        };
        for rank in [0, 1] {
            fetch.take(&part(rank, 0, None));
            fetch.take(&part(rank, 1, Some(KinetoEnd::default())));
        }
        let why = fetch.of(Rank(0)).and_then(|fetched| fetched.why.clone()).unwrap();
        assert!(why.starts_with("cannot write rank-0000.json.gz: No space left"), "{why}");
        assert!(!path(&folder, Rank(0)).exists(), "no part of a trace is left");
        assert_eq!((fetch.done(), fetch.of(Rank(1)).map(|fetched| fetched.bytes)), (1, Some(200)));
        assert!(fetch.under_way.is_empty());
        fs::remove_dir_all(&folder).unwrap();
    }
}
