//! Traces of a capture's steps by PyTorch's profiler.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufReader, Read},
    path::Path,
};

use flate2::read::GzDecoder;
use serde::Deserialize;
use xpu_analysis::{capture::Capture, export::profile::Profile};
use xpu_wire::id::Rank;

use super::super::capture::kineto::folder;
use crate::args::UsageError;

/// The largest trace that is read, uncompressed.
const LARGEST: u64 = 4 << 30;

#[derive(Deserialize)]
struct Manifest {
    ranks: Vec<OneRank>,
}

#[derive(Deserialize)]
struct OneRank {
    rank: Rank,
    file: Option<String>,
}

/// The traces of the capture's ranks. An unreadable trace is reported and left out.
pub(super) fn read(
    capture: &Capture,
    file: &Path,
    named: Option<&Path>,
) -> Result<BTreeMap<Rank, Profile>, UsageError> {
    let usual = folder(file);
    let place = named.unwrap_or(&usual);
    let manifest = place.join("manifest.json");
    if named.is_none() && !manifest.is_file() {
        return Ok(BTreeMap::new());
    }
    let wrong = |why: String| UsageError::Value(format!("cannot read {}: {why}", manifest.display()));
    let text = std::fs::read(&manifest).map_err(|error| wrong(error.to_string()))?;
    let Manifest { ranks } = serde_json::from_slice(&text).map_err(|error| wrong(error.to_string()))?;
    let mut profiles = BTreeMap::new();
    for OneRank { rank, file } in ranks {
        let Some(name) = file.filter(|_| capture.ranks.contains_key(&rank)) else { continue };
        // Only files in that folder are read.
        let Some(name) = Path::new(&name).file_name() else { continue };
        let path = place.join(name);
        match one(&path) {
            Ok(profile) => {
                if profile.left_out > 0 {
                    eprintln!("xpu-top: {}: {} events are left out", path.display(), profile.left_out);
                }
                profiles.insert(rank, profile);
            }
            Err(why) => eprintln!("xpu-top: {} is left out: {why}", path.display()),
        }
    }
    Ok(profiles)
}

fn one(path: &Path) -> Result<Profile, String> {
    let file = BufReader::new(File::open(path).map_err(|error| error.to_string())?);
    Profile::read(BufReader::new(GzDecoder::new(file).take(LARGEST))).map_err(|error| error.to_string())
}
