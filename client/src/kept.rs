//! Opens the folder that a collector keeps of a hang, as one recording, merged with the folders of the job's
//! other hosts in the same place.

use std::{
    cmp::Reverse,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use xpu_model::hangs::{self, RECORDING};
use xpu_recording::{Header, Kind, Media, Recording, RecordingError, SealedBlock, Writer};
use xpu_wire::{id::JobName, unit::Moment};

/// Folders of one job made within this time of each other belong to the same hang.
const ONE: Duration = Duration::from_mins(2);

/// Size limit of all folders together, in bytes.
const MOST_BYTES: u64 = 512 << 20;

/// The data that one host keeps of a hang.
struct Kept {
    path: PathBuf,
    recording: Recording,
}

pub(super) fn open(folder: &Path) -> Result<Recording, RecordingError> {
    let path = folder.join(RECORDING);
    let named = Recording::open_file(&path).map_err(|error| match error {
        RecordingError::Io(error) if error.kind() == io::ErrorKind::NotFound => {
            let why = format!("the folder has no {RECORDING}; incident folders of hangs have one");
            RecordingError::Io(io::Error::new(io::ErrorKind::NotFound, why))
        }
        other => other,
    })?;
    let others = others(folder, named.header());
    if others.is_empty() { Ok(named) } else { together(Kept { path, recording: named }, others) }
}

/// The folders of other hosts, one per host.
fn others(folder: &Path, header: &Header) -> Vec<Kept> {
    let Some(parent) = folder.canonicalize().ok().and_then(|folder| Some(folder.parent()?.to_owned())) else {
        return Vec::new();
    };
    let apart = |made: Moment| made.since(header.made).max(header.made.since(made));
    let mut found: Vec<_> = kept_in(&parent)
        .filter_map(|folder| {
            let path = folder.join(RECORDING);
            let recording = Recording::open_file(&path).ok()?;
            let its = recording.header();
            let is_of_it = !its.job.is_empty() && its.job == header.job && its.hosts != header.hosts;
            (is_of_it && apart(its.made) <= ONE).then_some(Kept { path, recording })
        })
        .collect();
    let of = |recording: &Recording| (recording.header().hosts.clone(), apart(recording.header().made));
    found.sort_by_key(|kept| of(&kept.recording));
    found.dedup_by_key(|kept| kept.recording.header().hosts.clone());
    found
}

/// Finished folders.
fn kept_in(parent: &Path) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    let finished = entries.filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."));
    finished.map(|entry| entry.path()).filter(|path| path.is_dir())
}

/// All blocks in one recording; the player orders them.
fn together(named: Kept, others: Vec<Kept>) -> Result<Recording, RecordingError> {
    let mut header = named.recording.header().clone();
    header.hosts.extend(others.iter().flat_map(|other| other.recording.header().hosts.clone()));
    let mut writer = Writer::begin(Vec::new(), &header)?;
    for Kept { path, recording } in [named].into_iter().chain(others) {
        // Ignores a file that has disappeared since.
        let Ok(bytes) = fs::read(&path) else { continue };
        if writer.totals().bytes + bytes.len() as u64 > MOST_BYTES {
            break;
        }
        let frames = |kind: Kind| matches!(kind, Kind::Overview | Kind::Detail);
        for entry in recording.entries().iter().filter(|entry| frames(entry.kind)) {
            let (from, stored) = (entry.offset as usize, entry.header_bytes() + entry.stored as usize);
            let Some(block) = from.checked_add(stored).and_then(|to| bytes.get(from..to)) else { break };
            writer.write(&SealedBlock { entry: *entry, bytes: block.to_vec() })?;
        }
    }
    Recording::open(Media::memory(writer.finish()?.0))
}

/// The newest hang kept on this machine, of this job or of any, if it can be played.
pub fn newest(job: Option<&JobName>) -> Option<PathBuf> {
    let parent = hangs::folder(|name| std::env::var_os(name))?;
    let mut all: Vec<_> = kept_in(&parent)
        .filter_map(|folder| {
            let recording = Recording::open_file(&folder.join(RECORDING)).ok()?;
            let header = recording.header();
            let is_of_it = job.is_none_or(|job| job.as_str() == header.job);
            is_of_it.then_some((Reverse(header.made), folder))
        })
        .collect();
    all.sort();
    all.into_iter().next().map(|(_, folder)| folder)
}

#[cfg(test)]
mod tests {
    use xpu_recording::Packer;
    use xpu_simulation::Simulation;
    use xpu_wire::{codec, frame::Frame};

    use super::*;
    use crate::replay_file;

    /// Keeps these frames as the collector of a host does.
    fn keep(parent: &Path, name: &str, host: &str, made: u64, frames: &[Frame]) -> PathBuf {
        let header = Header {
            job: "llama-70b".to_owned(),
            hosts: vec![host.to_owned()],
            made: Moment(made * 1_000_000_000),
            by: String::new(),
        };
        let mut packer = Packer::default();
        let mut writer = Writer::begin(Vec::new(), &header).unwrap();
        for frame in frames {
            packer.push_encoded(frame.now, None, &codec::encode(frame)).unwrap();
        }
        packer.rest().unwrap().iter().for_each(|block| writer.write(block).unwrap());
        let folder = parent.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(RECORDING), writer.finish().unwrap().0).unwrap();
        folder
    }

    #[test]
    fn incident_files_of_several_hosts_are_replayed_together() {
        let dir = std::env::temp_dir().join(format!("xpu-top-kept-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let simulation = Simulation::new(1, 3, 2);
        let of = |host: usize, second| vec![simulation.digests(second).remove(host)];
        let first = keep(&dir, "a", "a", 1000, &of(0, 50));
        keep(&dir, "b", "b", 1060, &of(1, 49));
        keep(&dir, "b-before", "b", 600, &of(1, 40));
        keep(&dir, ".c.1.new", "c", 1000, &of(2, 50));
        fs::create_dir(dir.join("torn")).unwrap();
        fs::write(dir.join("torn").join(RECORDING), b"\x89xpurec\n\x01\0").unwrap();
        let mut cursor = replay_file::open(&first).unwrap();
        assert_eq!(cursor.recording().header().hosts, ["a", "b"]);
        let mut hosts = Vec::new();
        while let Some((_, frame)) = cursor.next(Moment(u64::MAX)).unwrap() {
            hosts.push(frame.host);
        }
        assert_eq!(hosts, [simulation.host(1), simulation.host(0)], "in order");
        let error = replay_file::open(&dir).unwrap_err().to_string();
        assert!(error.contains("the folder has no recording.xpurec"), "{error}");
        fs::remove_dir_all(&dir).unwrap();
    }
}
