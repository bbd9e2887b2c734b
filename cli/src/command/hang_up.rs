//! SIGHUP: the terminal has closed. Under `nohup` the signal stays ignored, and the command continues.

use std::{future::pending, io, ptr};

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct HangUp(Option<Signal>);

impl HangUp {
    /// Handles SIGHUP from now on, unless it is ignored.
    pub(super) fn install() -> io::Result<Self> {
        let heard = (!is_ignored()).then(|| signal(SignalKind::hangup()));
        heard.transpose().map(Self)
    }

    /// Waits for the signal.
    pub(super) async fn received(&mut self) {
        match &mut self.0 {
            Some(signal) => drop(signal.recv().await),
            None => pending().await,
        }
    }
}

fn is_ignored() -> bool {
    // SAFETY: an all-zero action is valid storage, and with no new action the old one is only written there.
    unsafe {
        let mut action = std::mem::zeroed::<libc::sigaction>();
        libc::sigaction(libc::SIGHUP, ptr::null(), &raw mut action);
        action.sa_sigaction == libc::SIG_IGN
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn sighup_is_handled_unless_it_is_ignored() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let comes = async |hang_up: &mut HangUp| {
                // SAFETY: SIGHUP is handled, or ignored.
                unsafe { libc::raise(libc::SIGHUP) };
                tokio::time::timeout(Duration::from_millis(500), hang_up.received()).await.is_ok()
            };
            // SAFETY: no handler is installed.
            unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
            assert!(!comes(&mut HangUp::install().expect("it is asked for")).await, "under nohup");
            // SAFETY: as above.
            unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
            assert!(comes(&mut HangUp::install().expect("it is asked for")).await);
        });
    }
}
