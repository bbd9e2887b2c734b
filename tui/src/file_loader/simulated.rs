//! The time of a step of a capture without its stragglers, in one sentence.

use std::path::Path;

use xpu_analysis::{
    file,
    what_if::{Job, WhatIf},
};
use xpu_wire::id::JobName;

/// The result for the capture that was made last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Simulated {
    pub job: JobName,
    /// The repair that gains most, or why nothing was simulated.
    pub sentence: String,
}

impl Simulated {
    /// `None` for a file that is no capture of a job.
    pub fn of(path: &Path) -> Option<Self> {
        let (capture, _damage) = file::open(path).ok()?;
        let job = capture.sheet.as_ref()?.job.clone();
        let sentence = match Job::of_capture(&capture) {
            Ok(of) => {
                let sentences = WhatIf::of(&of).sentences;
                // The first sentence is about all stragglers, the next about one of them.
                sentences.into_iter().take(2).next_back()?
            }
            Err(why) => format!("unknown for {}: {why}", path.display()),
        };
        Some(Self { job, sentence })
    }
}
