//! The results of a GPU in earlier runs: one file per GPU, named by its UUID, so that it is found from any
//! host.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{Path, PathBuf},
    time::SystemTime,
};

use serde::{Deserialize, Serialize};
use xpu_analysis::qualify::{Gpu, Host, Verdict};
use xpu_model::baseline;

/// Number of runs kept per GPU, and of GPUs; all hosts may share a home directory.
const RUNS: usize = 20;
const GPUS: usize = 4096;

/// With fewer runs, there is no comparison, because a single run may be an exception.
const FEWEST: usize = 3;

#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
struct History {
    runs: Vec<Run>,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    /// Seconds since 1970.
    at: u64,
    quick: bool,
    /// Medians by the titles of figures.
    figures: BTreeMap<String, f64>,
}

/// Adds the medians of earlier runs of this kind to the figures of a GPU.
pub(super) fn recall(gpu: &mut Gpu, quick: bool) {
    let Some(history) = gpu.uuid.as_deref().and_then(|uuid| read(&folder()?, uuid)) else { return };
    for figure in &mut gpu.figures {
        figure.past = history.median(&figure.title(), quick);
    }
}

/// Adds the results of GPUs that pass. A folder that cannot be written is reported.
pub(super) fn keep(host: &Host, quick: bool) {
    let Some(folder) = folder() else { return };
    let at = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    for gpu in host.gpus.iter().filter(|gpu| gpu.verdict == Verdict::Pass) {
        let Some(uuid) = gpu.uuid.as_deref() else { continue };
        let figures = gpu.figures.iter().map(|figure| (figure.title(), figure.median)).collect();
        let mut history = read(&folder, uuid).unwrap_or_default();
        history.add(Run { at, quick, figures });
        if let Err(error) = write(&folder, uuid, &history) {
            eprintln!("xpu-top: {}: {error}; this run is not kept for later ones", folder.display());
            return;
        }
    }
    forget(&folder);
}

impl History {
    fn median(&self, title: &str, quick: bool) -> Option<f64> {
        let runs = self.runs.iter().filter(|run| run.quick == quick);
        let known: Vec<_> = runs.filter_map(|run| run.figures.get(title).copied()).collect();
        if known.len() < FEWEST { None } else { xpu_model::job::median(known) }
    }

    fn add(&mut self, run: Run) {
        self.runs.push(run);
        let old = self.runs.len().saturating_sub(RUNS);
        self.runs.drain(..old);
    }
}

/// `~/.local/state/xpu-top/qualify`
fn folder() -> Option<PathBuf> {
    Some(baseline::folder(|name| env::var_os(name))?.with_file_name("qualify"))
}

fn read(folder: &Path, uuid: &str) -> Option<History> {
    serde_json::from_slice(&fs::read(folder.join(file(uuid))).ok()?).ok()
}

fn write(folder: &Path, uuid: &str, history: &History) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let new = folder.join(format!(".{}.{}", file(uuid), std::process::id()));
    fs::write(&new, serde_json::to_vec(history)?)?;
    fs::rename(new, folder.join(file(uuid)))
}

fn file(uuid: &str) -> String {
    format!("{uuid}.json")
}

/// If there are too many files, removes those of the GPUs that were not qualified for the longest time.
fn forget(folder: &Path) {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut all: Vec<_> =
        all.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path()))).collect();
    all.sort();
    let old = all.len().saturating_sub(GPUS);
    for (_, path) in &all[..old] {
        // Another run may have removed the file.
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(rate: f64, quick: bool) -> Run {
        Run { at: 0, quick, figures: [("memory".to_owned(), rate)].into() }
    }

    #[test]
    fn three_runs_are_a_past_and_old_ones_are_dropped() {
        let mut history = History::default();
        for (rate, median) in [(1.0, None), (2.0, None), (3.0, Some(2.0))] {
            history.add(run(rate, false));
            assert_eq!(history.median("memory", false), median);
        }
        assert_eq!((history.median("memory", true), history.median("gemm", false)), (None, None));
        (0..50).for_each(|_| history.add(run(9.0, false)));
        assert_eq!((history.runs.len(), history.median("memory", false)), (RUNS, Some(9.0)));
    }

    #[test]
    fn a_written_history_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let mut history = History::default();
        history.add(run(4.5, true));
        write(folder.path(), "abc", &history).expect("written");
        assert_eq!(read(folder.path(), "abc"), Some(history));
        assert_eq!(read(folder.path(), "abd"), None);
    }
}
