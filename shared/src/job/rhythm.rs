//! How a rank's steps followed each other over minutes: what a regression is told by.

use std::collections::VecDeque;

use super::rank::push_bounded;
use crate::frame::RankDigest;

/// Digests with steps that are remembered: four minutes of short ones.
const REMEMBERED: usize = 240;

/// The steps of one digest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Beat {
    /// Their median, in seconds.
    pub pace: f32,
    /// How many, and the seconds from the last one before them to the last of them.
    pub steps: f32,
    pub span: f32,
    /// Arithmetic, in TFLOP.
    pub work: f32,
    /// What the products of the digest ran at, in TFLOPS; 0 if none was timed.
    pub rate: f32,
}

#[derive(Debug, Default)]
pub(super) struct Rhythm {
    beats: VecDeque<Beat>,
}

impl Rhythm {
    /// Takes a digest, and the one before it.
    pub(super) fn take(&mut self, before: Option<&RankDigest>, digest: &RankDigest) {
        let (Some(before), Some(median)) = (before, digest.step_median) else { return };
        let (Some(from), Some(to)) = (before.step, digest.step) else { return };
        let steps = to.0.saturating_sub(from.0);
        let span = digest.step_at.since(before.step_at).as_secs_f64();
        if steps == 0 || span <= 0.0 || digest.step_count == 0 {
            return;
        }
        let (flops, time) = (
            digest.gemm_timed_flops - before.gemm_timed_flops,
            digest.gemm_timed_for.0.saturating_sub(before.gemm_timed_for.0) as f64,
        );
        let beat = Beat {
            pace: median.seconds() as f32,
            steps: steps as f32,
            span: span as f32,
            work: ((digest.gemm_flops - before.gemm_flops) / 1e12) as f32,
            rate: if time > 0.0 { (flops / time / 1e3) as f32 } else { 0.0 },
        };
        push_bounded(&mut self.beats, beat, REMEMBERED);
    }

    /// Oldest first.
    pub(super) fn beats(&self) -> impl ExactSizeIterator<Item = &Beat> + DoubleEndedIterator {
        self.beats.iter()
    }
}
