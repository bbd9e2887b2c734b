//! Measures the baseline of the ranks that run here, and keeps it for later runs.
//!
//! Each file has one run of a job, with this host's ranks only. Files of other hosts are in the same folder
//! if the hosts share a home.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use xpu_model::{
    baseline::{Baseline, Measure},
    job::Jobs,
};
use xpu_wire::{
    frame::{Body, Frame},
    id::{HostName, JobName},
    unit::Moment,
};

/// Interval of readings and writes.
const READ: Duration = Duration::from_secs(5);
const WRITE: Duration = Duration::from_mins(1);

/// Largest number of jobs measured at a time.
const JOBS: usize = 32;

/// Number and bytes of the files that are kept. The oldest are removed first.
const FILES: usize = 256;
const BYTES: u64 = 16 << 20;

/// Longest file name, without its numbers.
const LONGEST: usize = 80;

#[derive(Debug)]
pub(crate) struct Runs {
    /// `None` if nothing is measured or kept.
    folder: Option<PathBuf>,
    host: HostName,
    jobs: Jobs,
    measures: BTreeMap<JobName, Measure>,
    read_at: Moment,
    write_at: Moment,
}

impl Runs {
    pub(crate) fn new(folder: Option<PathBuf>, host: HostName) -> Self {
        let (read_at, write_at) = (Moment::default(), Moment::default());
        Self { folder, host, jobs: Jobs::default(), measures: BTreeMap::new(), read_at, write_at }
    }

    /// Takes a published frame.
    pub(crate) fn take(&mut self, frame: &Frame) {
        if self.folder.is_some() && matches!(frame.body, Body::Digest(_) | Body::Event(_)) {
            self.jobs.fold(frame);
        }
    }

    /// Reads and writes what is due. `gpu` returns the name of a job's GPUs.
    pub(crate) fn tend(&mut self, now: Moment, gpu: impl Fn(&JobName) -> String) {
        if self.folder.is_none() || now < self.read_at {
            return;
        }
        self.read_at = now.after(READ);
        let mut over = Vec::new();
        for job in self.jobs.iter() {
            if job.living() == 0 {
                over.push(job.name().clone());
            } else if self.measures.contains_key(job.name()) || self.measures.len() < JOBS {
                self.measures.entry(job.name().clone()).or_default().take(job);
            }
        }
        let is_due = now >= self.write_at;
        if is_due {
            self.write_at = now.after(WRITE);
        }
        for (name, measure) in &self.measures {
            let Some(job) = self.jobs.get(name).filter(|_| is_due || over.contains(name)) else { continue };
            if let Some(baseline) = measure.baseline(job, &gpu(name)) {
                self.write(&baseline);
            }
        }
        // A new run of the same name counts as another job.
        self.measures.retain(|name, _| !over.contains(name));
        self.jobs.forget(|name, _| over.contains(name));
    }

    fn write(&self, baseline: &Baseline) {
        let Some(folder) = &self.folder else { return };
        let written = write(folder, &file_name(baseline, &self.host), baseline);
        if let Err(error) = written.and_then(|()| prune(folder)) {
            tracing::warn!("the baseline of {} is not kept: {}: {error}", baseline.job, folder.display());
        }
    }
}

fn file_name(baseline: &Baseline, host: &HostName) -> String {
    let (job, host) = (fit(baseline.job.as_str()), fit(host.as_str()));
    format!("{job}-{}-{}-{host}.json", baseline.world_size, baseline.began.0 / 1_000_000_000)
}

/// A name as part of a file name.
pub(crate) fn fit(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    text.chars().map(|c| if fits(c) { c } else { '_' }).take(LONGEST).collect()
}

/// Writes the file under another name first, so that readers always find a whole file.
fn write(folder: &Path, name: &str, baseline: &Baseline) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    let new = folder.join(format!(".{name}.{}.new", std::process::id()));
    let _ = fs::remove_file(&new);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec_pretty(baseline)?)?;
    fs::rename(&new, folder.join(name))
}

/// Removes the oldest files beyond the limits.
fn prune(folder: &Path) -> io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        if let Ok(about) = entry.metadata()
            && about.is_file()
        {
            files.push((about.modified()?, about.len(), entry.path()));
        }
    }
    files.sort_by_key(|(modified, ..)| std::cmp::Reverse(*modified));
    let mut bytes = 0;
    for (at, (_, length, path)) in files.iter().enumerate() {
        bytes += length;
        if at >= FILES || bytes > BYTES {
            fs::remove_file(path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use xpu_simulation::Simulation;

    use super::*;

    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("xpu-top-runs-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Self(path)
        }

        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(&self.0)
                .map(|all| all.map(|file| file.unwrap().path()).collect())
                .unwrap_or_default()
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Joins a job's ranks, and then publishes the digests of these seconds.
    fn publish(runs: &mut Runs, simulation: &Simulation, seconds: std::ops::Range<u64>) {
        let Body::Snapshot(snapshot) = simulation.snapshots(seconds.start).remove(0).body else {
            unreachable!()
        };
        for rank in &snapshot.jobs[0].ranks {
            let event = Body::Event(xpu_wire::frame::Event::Joined(rank.info.clone()));
            runs.take(&Frame { body: event, ..simulation.digests(seconds.start).remove(0) });
        }
        for second in seconds {
            let frame = simulation.digests(second).remove(0);
            runs.take(&frame);
            runs.tend(frame.now, |_| "NVIDIA H200".to_owned());
        }
    }

    #[test]
    fn a_run_leaves_one_file_for_its_owner_alone() {
        let place = Place::new("file");
        let simulation = Simulation { job: "a/b c".into(), ..Simulation::new(1, 1, 4) };
        let mut runs = Runs::new(Some(place.0.clone()), "node 1".into());
        publish(&mut runs, &simulation, 10..40);
        assert!(place.files().is_empty(), "too little is known");
        publish(&mut runs, &simulation, 40..400);
        let files = place.files();
        let [file] = &files[..] else { panic!("{files:?}") };
        assert_eq!(file.file_name().unwrap().to_str(), Some("a_b_c-4-1800000000-node_1.json"));
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o777, 0o600);
        let kept: Baseline = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
        assert_eq!(
            (kept.job.as_str(), kept.ranks.len(), kept.gpu.name.as_str()),
            ("a/b c", 4, "NVIDIA H200")
        );
        assert!(kept.ranks.iter().all(|rank| rank.step_ms_mean.is_some() && rank.gemm_tflops.is_some()));
    }

    #[test]
    fn the_oldest_runs_go_first() {
        let place = Place::new("bounded");
        let simulation = Simulation::new(1, 1, 1);
        let mut runs = Runs::new(Some(place.0.clone()), "a".into());
        publish(&mut runs, &simulation, 10..200);
        let first = place.files().remove(0);
        for number in 0..FILES {
            fs::copy(&first, place.0.join(format!("{number}.json"))).unwrap();
        }
        let old = std::fs::File::options().write(true).open(place.0.join("7.json")).unwrap();
        old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        publish(&mut runs, &simulation, 200..300);
        assert_eq!(place.files().len(), FILES);
        assert!(first.exists() && !place.0.join("7.json").exists());
    }
}
