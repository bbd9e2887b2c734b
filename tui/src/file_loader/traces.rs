//! The label of a folder of traces by PyTorch's profiler, from its manifest.

use std::{fs, io::Read as _, path::Path};

use serde::Deserialize;

use super::{Label, What};

/// Ending of such a folder.
pub(super) const ENDING: &str = "kineto";

/// The error if something is requested that only a capture has.
pub(super) const NO_CAPTURE: &str = "it is a folder of traces: open one of its files in ui.perfetto.dev";

/// Longest manifest: that of ten thousand ranks has five megabytes.
const LONGEST: u64 = 16 << 20;

/// Files of a folder whose sizes are summed.
const FILES: usize = 16_384;

#[derive(Deserialize)]
struct Manifest {
    job: String,
    window: Window,
    ranks: Vec<OneRank>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Window {
    Steps { first_step: u64, last_step: u64 },
    Time { duration_ms: f64 },
}

#[derive(Deserialize)]
struct OneRank {
    file: Option<String>,
}

/// The label of a folder. Without a manifest, the traces are not complete.
pub(super) fn label(folder: &Path) -> Result<Label, String> {
    let Ok(file) = fs::File::open(folder.join("manifest.json")) else {
        let what = What::Traces { of: None, ranks: 0, missing: 0 };
        return Ok(Label { what, job: String::new(), closed: false, damage: 0 });
    };
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).map_err(|error| format!("its manifest.json: {error}"))?;
    let Manifest { job, window, ranks } =
        serde_json::from_str(&text).map_err(|error| format!("its manifest.json: {error}"))?;
    let of = match window {
        Window::Steps { first_step, last_step } if first_step == last_step => format!("step {first_step}"),
        Window::Steps { first_step, last_step } => format!("steps {first_step} to {last_step}"),
        Window::Time { duration_ms } => format!("{duration_ms:.0} ms"),
    };
    let missing = ranks.iter().filter(|rank| rank.file.is_none()).count();
    let what = What::Traces { of: Some(of), ranks: ranks.len(), missing };
    Ok(Label { what, job: xpu_wire::text::clean(&job).into_owned(), closed: true, damage: 0 })
}

/// Sum of the sizes of its files.
pub(super) fn bytes(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten().take(FILES);
    files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file).map(|about| about.len()).sum()
}
