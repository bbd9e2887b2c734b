//! Information for support, in one file, without private data.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::Context as _;
use flate2::{Compression, write::GzEncoder};
use xpu_wire::endpoint::RuntimeDir;

use super::{Examination, redaction::Redaction};
use crate::args::DoctorArgs;

/// Bytes of the end of a log.
const LOG: u64 = 256 << 10;

/// Files of the machine that are included completely.
const MACHINE: [&str; 6] = [
    "/proc/version",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/self/limits",
    "/proc/self/cgroup",
    "/etc/os-release",
];

/// Bytes of these files.
const MOST: u64 = 64 << 10;

/// Writes a gzipped tar that only its owner can read. Returns the number of files in it.
pub(super) fn write(path: &Path, examination: &Examination, args: &DoctorArgs) -> anyhow::Result<usize> {
    let redaction = Redaction::of_this_user(args.connection.key_file.as_deref());
    let file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).with_context(|| {
            format!("cannot write {}; name a file that does not exist yet", path.display())
        })?;
    let mut archive = tar::Builder::new(GzEncoder::new(file, Compression::default()));
    let mut files = vec![
        ("doctor.txt".to_owned(), examination.text()),
        ("doctor.json".to_owned(), serde_json::to_string_pretty(examination)?),
        ("environment.txt".to_owned(), redaction.environment()),
    ];
    for place in MACHINE {
        let name = format!("machine/{}", place.trim_start_matches('/').replace('/', "-"));
        files.extend(begin_of(Path::new(place)).map(|text| (name, text)));
    }
    let runtime = RuntimeDir::locate();
    // In another user's directory a log may be a pipe, or a link to an unrelated file.
    if runtime.check().is_ok() {
        let log = end_of(&runtime.log(args.connection.base()?));
        files.extend(log.map(|text| ("collector.log".to_owned(), text)));
    }
    for (name, text) in &files {
        let text = redaction.apply(text);
        let mut header = tar::Header::new_gnu();
        header.set_size(text.len() as u64);
        header.set_mode(0o600);
        header.set_cksum();
        archive.append_data(&mut header, format!("xpu-top-doctor/{name}"), text.as_bytes())?;
    }
    archive.into_inner()?.finish()?.sync_all()?;
    Ok(files.len())
}

fn begin_of(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(MOST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn end_of(path: &Path) -> Option<String> {
    let length = fs::metadata(path).ok()?.len();
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(length.saturating_sub(LOG)))?;
        let mut bytes = Vec::new();
        file.take(LOG).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    read().ok().map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}
