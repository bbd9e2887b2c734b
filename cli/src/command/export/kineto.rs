//! A capture in the format of PyTorch's profiler (Kineto), one file per rank, for readers of its traces:
//! Holistic Trace Analysis, `TensorBoard` and Perfetto.
//!
//! HTA finds the rank by `"rank": N` at the start of the file, with a blank. It reads stream 0 as no stream.
//! It drops work on the GPU if no call on the host has its correlation id.

mod events;
mod launches;

use std::{
    fs,
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use events::Events;
use flate2::{Compression, write::GzEncoder};
use serde_json::{Value, json};
use xpu_analysis::capture::{Capture, CapturedCommunicator, Clocks, RankCapture, Single};
use xpu_client::new_file;
use xpu_wire::{id::Rank, unit::Moment};

use crate::args::UsageError;

/// The file of each rank.
///
/// # Errors
/// Fails if one file is named and there are several ranks.
pub(super) fn paths(capture: &Capture, place: &Path) -> Result<Vec<(Rank, PathBuf)>, UsageError> {
    let name = place.to_string_lossy();
    if !name.ends_with(".json") && !name.ends_with(".json.gz") {
        // `TensorBoard` reads files of this name.
        let path = |rank: Rank| place.join(format!("rank-{:04}.pt.trace.json.gz", rank.process().0));
        return Ok(capture.ranks.keys().map(|&rank| (rank, path(rank))).collect());
    }
    match capture.ranks.len() {
        0 | 1 => Ok(capture.ranks.keys().map(|&rank| (rank, place.to_owned())).collect()),
        ranks => Err(UsageError::Value(format!(
            "--kineto {name}: the capture has {ranks} ranks, one file each: name a folder, or one rank with --only"
        ))),
    }
}

pub(super) fn write(capture: &Capture, paths: &[(Rank, PathBuf)]) -> anyhow::Result<()> {
    let clocks = Clocks::of(capture);
    let begin = begin(capture, &clocks);
    for (rank, path) in paths {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
        }
        let Some(of) = capture.ranks.get(rank) else { continue };
        let at = |moment| clocks.aligned(&of.host, moment).0;
        let trace = Trace { capture, rank: *rank, of, begin, at: &at };
        new_file::write(path, |out| {
            if path.extension().is_some_and(|ending| ending == "gz") {
                let mut packed = GzEncoder::new(out, Compression::default());
                trace.write(path, &mut packed)?;
                packed.finish()?;
                return Ok(());
            }
            Ok(trace.write(path, out)?)
        })?;
    }
    Ok(())
}

/// The common origin of times in all files, so that ranks can be compared.
fn begin(capture: &Capture, clocks: &Clocks) -> u64 {
    let begins = capture.ranks.values().flat_map(|of| {
        let first = of.operations.first().map(|single| single.at);
        let gpu = of.operations.iter().filter_map(Single::on_gpu).map(|(begin, _)| begin).min();
        let steps = of.steps().map(|(_, from, _)| from).next();
        [first, gpu, steps].into_iter().flatten().map(|at| clocks.aligned(&of.host, at).0)
    });
    begins.min().unwrap_or(0)
}

/// One file.
struct Trace<'a> {
    capture: &'a Capture,
    rank: Rank,
    of: &'a RankCapture,
    begin: u64,
    at: &'a dyn Fn(Moment) -> u64,
}

impl Trace<'_> {
    fn write(&self, path: &Path, out: &mut dyn Write) -> io::Result<()> {
        let Self { rank, of, begin, .. } = self;
        let distributed = serde_json::to_string_pretty(&self.distributed())?;
        writeln!(out, "{{\n\"schemaVersion\": 1,\n\"distributedInfo\": {distributed},")?;
        writeln!(out, "\"deviceProperties\": [],\n\"host_name\": {},", json!(of.host.as_str()))?;
        writeln!(out, "\"displayTimeUnit\": \"ms\",\n\"baseTimeNanoseconds\": {begin},\n\"traceEvents\": [")?;
        let mut first = true;
        Events::of(self).write(&mut |event: &Value| {
            out.write_all(if std::mem::take(&mut first) { b"" } else { b",\n" })?;
            serde_json::to_writer(&mut *out, event).map_err(Into::into)
        })?;
        let name =
            path.file_name().map_or_else(|| rank.to_string(), |name| name.to_string_lossy().into_owned());
        writeln!(out, "\n],\n\"traceName\": {}\n}}", json!(name))
    }

    fn distributed(&self) -> Value {
        let communicators = &self.capture.communicators;
        let groups: Vec<_> = communicators
            .iter()
            .map(|(id, CapturedCommunicator { name, size, .. })| {
                json!({ "pg_name": id.to_string(), "pg_desc": name, "backend_config": "cuda:nccl", "pg_size": size })
            })
            .collect();
        let most = self.capture.ranks.keys().map(|rank| rank.process().0 + 1).max();
        json!({
            "backend": "nccl",
            "rank": self.rank.process().0,
            "world_size": self.capture.world_size.or(most).unwrap_or(1),
            "pg_count": groups.len(),
            "pg_config": groups,
            "nccl_version": "unknown",
        })
    }
}

#[cfg(test)]
mod tests;
