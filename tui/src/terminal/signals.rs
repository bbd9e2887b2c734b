//! Signals to the process.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal requests from the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// To end.
    End,
    /// To stop for a while, with the terminal restored.
    Stop,
    /// To continue after a stop.
    GoOn,
}

#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    hang_up: Signal,
    interrupt: Signal,
    quit: Signal,
    stop: Signal,
    go_on: Signal,
}

impl Signals {
    pub fn listen() -> io::Result<Self> {
        let of = |number| signal(SignalKind::from_raw(number));
        Ok(Self {
            terminate: of(libc::SIGTERM)?,
            hang_up: of(libc::SIGHUP)?,
            interrupt: of(libc::SIGINT)?,
            quit: of(libc::SIGQUIT)?,
            stop: of(libc::SIGTSTP)?,
            go_on: of(libc::SIGCONT)?,
        })
    }

    pub async fn next(&mut self) -> Request {
        tokio::select! {
            _ = self.terminate.recv() => Request::End,
            _ = self.hang_up.recv() => Request::End,
            _ = self.interrupt.recv() => Request::End,
            _ = self.quit.recv() => Request::End,
            _ = self.stop.recv() => Request::Stop,
            _ = self.go_on.recv() => Request::GoOn,
        }
    }
}
