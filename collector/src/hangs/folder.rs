//! The incident folders on disk. Each is complete under its name or absent. They are few enough for a home
//! folder, and only their owner can read them.

use std::{
    cmp::Reverse,
    fs::{self, DirBuilder, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use xpu_model::hangs::{RAS, RECORDING, STATUS};
use xpu_wire::{
    id::{HostName, JobName},
    unit::Moment,
};

use crate::runs::fit;

/// Number and bytes of the folders that are kept, over all jobs and over all hosts that share a home. The
/// oldest are removed first.
const FOLDERS: usize = 256;
const BYTES: u64 = 256 << 20;

/// The same for the newest incident, of which each host of the job writes a folder. Its folders were written
/// within [`SAME`].
const NEWEST_FOLDERS: usize = 4096;
const NEWEST_BYTES: u64 = 1 << 30;
const SAME: Duration = Duration::from_mins(2);

/// Age at which an unfinished folder counts as left behind by a collector that ended while it wrote.
const LEFT: Duration = Duration::from_hours(1);

/// Prefix of marker files for finished notifications, and how long they stay.
const CLAIMED: &str = ".told-";
const CLAIMED_FOR: Duration = Duration::from_hours(24);

/// Incidents of a job that begin within this time, on all its hosts, are one hang.
const ONE: u64 = 60_000_000_000;

#[derive(Debug)]
pub(super) struct Folder(PathBuf);

/// The files of one incident, with the answer of RAS if there is one.
#[derive(Clone, Copy)]
pub(super) struct Files<'a> {
    pub(super) recording: &'a [u8],
    pub(super) status: &'a [u8],
    pub(super) ras: Option<&'a [u8]>,
}

impl Folder {
    pub(super) fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of the folder for a job's incident at this time on this host.
    pub(super) fn place(&self, job: &JobName, at: Moment, host: &HostName) -> PathBuf {
        self.0.join(format!("{}-{}-{}", name_of(job), stamp(at), fit(host.as_str())))
    }

    /// Writes the files. A new folder appears complete. In an existing folder, each file is replaced as a
    /// whole.
    pub(super) fn write(&self, place: &Path, Files { recording, status, ras }: Files<'_>) -> io::Result<()> {
        private().recursive(true).create(&self.0)?;
        let files = [(RECORDING, recording), (STATUS, status)].into_iter().chain(ras.map(|ras| (RAS, ras)));
        if place.is_dir() {
            for (name, bytes) in files {
                let new = place.join(format!(".{name}.new"));
                let written = put(&new, bytes).and_then(|()| fs::rename(&new, place.join(name)));
                written.inspect_err(|_| drop(fs::remove_file(&new)))?;
            }
            return Ok(());
        }
        let name = place.file_name().unwrap_or_default().to_string_lossy();
        let new = self.0.join(format!(".{name}.{}.new", std::process::id()));
        remove(&new);
        let written = private().create(&new).and_then(|()| {
            files.clone().try_for_each(|(name, bytes)| put(&new.join(name), bytes))?;
            fs::rename(&new, place)
        });
        written.inspect_err(|_| remove(&new))
    }

    /// Removes the oldest folders, but never `newest`, which is of this job.
    pub(super) fn prune(&self, job: &JobName, newest: &Path) -> io::Result<()> {
        let written = fs::metadata(newest).and_then(|about| about.modified())?;
        let is_same = |path: &Path, modified: SystemTime| {
            let apart = |one: SystemTime, other| one.duration_since(other).unwrap_or_default();
            is_of(job, path) && apart(written, modified).max(apart(modified, written)) <= SAME
        };
        let (mut same, mut others): (Vec<Kept>, Vec<Kept>) = (Vec::new(), Vec::new());
        for entry in fs::read_dir(&self.0)?.flatten() {
            // Another host that shares this home has removed the folder.
            let Ok((about, modified)) =
                entry.metadata().and_then(|about| Ok((about.clone(), about.modified()?)))
            else {
                continue;
            };
            let path = entry.path();
            let age = modified.elapsed().unwrap_or_default();
            let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
            if is_hidden && about.is_dir() && age > LEFT {
                remove(&path);
            } else if is_hidden && about.is_file() && age > CLAIMED_FOR {
                let _ = fs::remove_file(&path);
            } else if !is_hidden && about.is_dir() && path != newest {
                let kept = if is_same(&path, modified) { &mut same } else { &mut others };
                kept.push(Kept { modified, bytes: bytes_of(&path), path });
            }
        }
        let own = bytes_of(newest);
        remove_oldest(same, NEWEST_FOLDERS - 1, NEWEST_BYTES.saturating_sub(own));
        remove_oldest(others, FOLDERS - 1, BYTES.saturating_sub(own));
        Ok(())
    }

    /// Whether this host sends the notification for the incident: the first of the hosts that share a home
    /// does.
    pub(super) fn claim(&self, job: &JobName, since: Moment) -> bool {
        let time = since.0 / ONE;
        let mark = |time: u64| self.0.join(format!("{CLAIMED}{}-{time}", fit(job.as_str())));
        if mark(time.saturating_sub(1)).exists() || mark(time + 1).exists() {
            return false;
        }
        let _ = private().recursive(true).create(&self.0);
        // If no marker can be created, a second notification is better than none.
        !put(&mark(time), b"").is_err_and(|error| error.kind() == io::ErrorKind::AlreadyExists)
    }
}

/// A folder on disk.
struct Kept {
    modified: SystemTime,
    bytes: u64,
    path: PathBuf,
}

/// Removes the oldest of these folders, so that at most this many folders and bytes remain.
fn remove_oldest(mut kept: Vec<Kept>, folders: usize, most: u64) {
    kept.sort_by_key(|folder| Reverse(folder.modified));
    let mut bytes = 0;
    for (at, folder) in kept.iter().enumerate() {
        bytes += folder.bytes;
        if at >= folders || bytes > most {
            remove(&folder.path);
        }
    }
}

/// Whether a folder is of this job, by its name.
fn is_of(job: &JobName, path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let rest = name.strip_prefix(&name_of(job)).and_then(|rest| rest.strip_prefix('-'));
    // A job may be named `a`, and another `a-1`.
    rest.is_some_and(|rest| rest.split('-').next().is_some_and(is_stamp))
}

/// Whether a part of a name is a time, as [`stamp`] writes it.
fn is_stamp(part: &str) -> bool {
    part.len() == 16 && part.ends_with('Z') && part.as_bytes()[8] == b'T'
}

/// The job in the name of a folder. A leading dot marks an unfinished folder.
fn name_of(job: &JobName) -> String {
    let job = fit(job.as_str());
    job.strip_prefix('.').map_or_else(|| job.clone(), |rest| format!("_{rest}"))
}

/// The files that this program writes into a folder.
const FILES: [&str; 3] = [RECORDING, STATUS, RAS];

fn bytes_of(folder: &Path) -> u64 {
    let length = |name| fs::symlink_metadata(folder.join(name)).map_or(0, |file| file.len());
    FILES.into_iter().map(length).sum()
}

fn private() -> DirBuilder {
    let mut builder = DirBuilder::new();
    builder.mode(0o700);
    builder
}

/// Writes a new file, which is on disk when this returns.
fn put(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Removes the files written here, and the folder if it is then empty: the user's own files stay.
fn remove(folder: &Path) {
    for name in FILES {
        let _ = fs::remove_file(folder.join(name));
        let _ = fs::remove_file(folder.join(format!(".{name}.new")));
    }
    let _ = fs::remove_dir(folder);
}

/// The moment in UTC: `20270115T080000Z`.
fn stamp(moment: Moment) -> String {
    let seconds = (moment.0 / 1_000_000_000).cast_signed();
    // SAFETY: a `tm` is plain data, for which zeros are valid.
    let mut time: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: reads one number and writes the one `tm`; both outlive the call.
    unsafe { libc::gmtime_r(&raw const seconds, &raw mut time) };
    let libc::tm { tm_year, tm_mon, tm_mday, tm_hour, tm_min, tm_sec, .. } = time;
    format!("{:04}{:02}{tm_mday:02}T{tm_hour:02}{tm_min:02}{tm_sec:02}Z", tm_year + 1900, tm_mon + 1)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    const AT: Moment = Moment(1_800_000_000_000_000_000);

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn an_incident_folder_is_complete_and_private_to_its_owner() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("a/hangs"));
        let place = folder.place(&"../a b".into(), AT, &"node/1".into());
        assert_eq!(place, dir.path().join("a/hangs/_._a_b-20270115T080000Z-node_1"));
        folder.write(&place, Files { recording: b"frames", status: b"{}", ras: None }).unwrap();
        assert_eq!(
            (mode(folder.path()), mode(&place), mode(&place.join(RECORDING)), mode(&place.join(STATUS))),
            (0o700, 0o700, 0o600, 0o600)
        );
        folder.write(&place, Files { recording: b"more frames", status: b"{}", ras: Some(b"[]") }).unwrap();
        assert_eq!(fs::read(place.join(RECORDING)).unwrap(), b"more frames");
        assert_eq!((fs::read(place.join(RAS)).unwrap(), mode(&place.join(RAS))), (b"[]".to_vec(), 0o600));
        assert_eq!(fs::read_dir(&place).unwrap().count(), 3, "nothing is left behind");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nor beside it");
    }

    #[test]
    fn a_failed_write_leaves_no_file() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("hangs"), "a file").unwrap();
        let folder = Folder::new(dir.path().join("hangs"));
        folder
            .write(
                &folder.place(&"a".into(), AT, &"b".into()),
                Files { recording: b"", status: b"", ras: None },
            )
            .unwrap_err();
        assert_eq!(fs::read(dir.path().join("hangs")).unwrap(), b"a file");
        assert!(folder.claim(&"a".into(), AT), "it is told all the same");
    }

    #[test]
    fn the_oldest_incidents_are_removed_first_and_foreign_files_stay() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let places: Vec<_> = (0..FOLDERS as u64 + 3)
            .map(|hour| folder.place(&"a".into(), AT.after(Duration::from_hours(hour)), &"b".into()))
            .collect();
        for (age, place) in places.iter().rev().enumerate() {
            folder.write(place, Files { recording: b"1", status: b"2", ras: Some(b"3") }).unwrap();
            if *place == places[1] {
                fs::write(place.join("notes"), "mine").unwrap();
            }
            let long_ago = SystemTime::now() - Duration::from_mins(3 * age as u64);
            fs::File::open(place).unwrap().set_modified(long_ago).unwrap();
        }
        let newest = &places[places.len() - 1];
        folder.prune(&"a".into(), newest).unwrap();
        let there: Vec<_> = places.iter().map(|place| place.exists()).collect();
        assert_eq!(there[..4], [false, true, false, true]);
        assert_eq!(fs::read_dir(&places[1]).unwrap().count(), 1);
        assert!(newest.exists());
    }

    /// All hosts of a large job write at the same time into a home that they share.
    #[test]
    fn folders_of_the_same_hang_do_not_replace_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().to_owned());
        let write = |job: &str, host: usize, age: u64| {
            let place = folder.place(&job.into(), AT, &HostName::from(host.to_string().as_str()));
            folder.write(&place, Files { recording: b"1", status: b"2", ras: None }).unwrap();
            let long_ago = SystemTime::now() - Duration::from_secs(age);
            fs::File::open(&place).unwrap().set_modified(long_ago).unwrap();
            place
        };
        let other = write("a-1", 0, 3600);
        let same: Vec<_> = (0..300).map(|host| write("a", host, host as u64 % 60)).collect();
        folder.prune(&"a".into(), &same[0]).unwrap();
        assert!(other.exists() && same.iter().all(|place| place.exists()));
        let later = write("b", 0, 0);
        folder.prune(&"b".into(), &later).unwrap();
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), FOLDERS);
    }

    #[test]
    fn one_host_notifies_for_simultaneous_incidents_of_several() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::new(dir.path().join("hangs"));
        let job = JobName::from("a");
        assert!(folder.claim(&job, AT));
        let later = |seconds| AT.after(Duration::from_secs(seconds));
        assert!(!folder.claim(&job, AT) && !folder.claim(&job, later(59)) && !folder.claim(&job, later(61)));
        assert!(folder.claim(&job, later(180)) && folder.claim(&"b".into(), AT));
    }
}
