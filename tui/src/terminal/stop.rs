//! Stops as Ctrl-Z does on a terminal that is not raw.

use std::{io, mem, ptr};

/// Stops the process until it is continued. If that is impossible (no shell has it as a job), it continues at
/// once: the kernel decides, through SIGTSTP's default action.
pub(super) fn stop() -> io::Result<()> {
    // SAFETY: zero is a valid sigaction: the default action, no flags, an empty mask.
    let default: libc::sigaction = unsafe { mem::zeroed() };
    let ours = swap(&default)?;
    // SAFETY: `raise` has no precondition.
    unsafe { libc::raise(libc::SIGTSTP) };
    swap(&ours).map(drop)
}

/// The previous action of SIGTSTP.
fn swap(action: &libc::sigaction) -> io::Result<libc::sigaction> {
    // SAFETY: zero is a valid sigaction.
    let mut before: libc::sigaction = unsafe { mem::zeroed() };
    // SAFETY: both pointers are to live sigactions; what is installed is the default action, or what was installed before.
    let done = unsafe { libc::sigaction(libc::SIGTSTP, ptr::from_ref(action), &raw mut before) };
    if done == 0 { Ok(before) } else { Err(io::Error::last_os_error()) }
}
