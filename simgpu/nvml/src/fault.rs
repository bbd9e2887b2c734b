//! Faults of a GPU. A test writes them as files into the machine's folder.

use std::fs;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

use simgpu_engine::machine;

/// Interval between two checks of the folder.
const LOOK: Duration = Duration::from_millis(10);

fn file(kind: &str, device: u32) -> Option<PathBuf> {
    Some(machine::folder()?.join(format!("{kind}-{device}")))
}

/// While a file `sick-<device>` exists, no call on the device returns.
pub(crate) fn hold(device: u32) {
    while file("sick", device).is_some_and(|file| file.exists()) {
        sleep(LOOK);
    }
}

/// While a file `no-gpm-<device>` exists, the device has no performance monitor.
pub(crate) fn is_old(device: u32) -> bool {
    file("no-gpm", device).is_some_and(|file| file.exists())
}

/// Returns the error in the file `xid-<device>`, and removes the file.
pub(crate) fn take_xid(device: u32) -> Option<u64> {
    let file = file("xid", device)?;
    let code = fs::read_to_string(&file).ok()?.trim().parse().ok()?;
    fs::remove_file(file).ok()?;
    Some(code)
}

/// Calls `look` until it returns a value or the time is over.
pub(crate) fn look_for<T>(limit: Duration, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begun = std::time::Instant::now();
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if begun.elapsed() >= limit {
            return None;
        }
        sleep(LOOK);
    }
}
