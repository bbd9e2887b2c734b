//! Kernel launches: counted, also those the user asked for by name.

use cudarc::runtime::sys::cudaStream_t;

use crate::lane::Lane;

/// Patterns there can be.
pub(crate) const PATTERNS: usize = 16;

/// Before the launch.
#[inline]
pub(crate) fn begin(lane: &Lane, stream: impl FnOnce() -> cudaStream_t) {
    let observer = lane.observer();
    if observer.may_capture()
        && let Some(capture) = observer.capture_of(stream())
    {
        return observer.graphs.captured(capture, |contents| contents.kernels += 1);
    }
    lane.counters.kernels.add(1);
}
