//! What is wanted of a capture.

use std::time::Duration;

use xpu_wire::frame::CaptureWindow;

use crate::time;

/// What is wanted of each rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    pub what: Wanted,
    /// Steps before those, as far as they were seen.
    pub before: u32,
    /// All kernels through CUPTI.
    pub activity: bool,
    /// Python's functions.
    pub functions: bool,
    /// How long all of it may take.
    pub wait: Duration,
    /// Goes on until it would be known if a rank were slow, so that the file can say it.
    pub watch: bool,
}

/// The length of a capture as people write it: `500ms`, `2s`, `1m`.
pub fn window_length(text: &str) -> Result<Duration, String> {
    let length = time::duration(text).filter(|length| !length.is_zero() && *length <= CaptureWindow::LONGEST);
    length.ok_or_else(|| "write a time like 500ms, 2s or 1m, ten minutes at most".to_owned())
}

/// A number of steps, or a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    Steps(u32),
    Time(Duration),
}
