//! One line on standard error with a capture's progress, rewritten in place on a terminal.

use std::io::{IsTerminal as _, Write as _};

use xpu_client::capture::CaptureEvent;

#[derive(Debug, Default)]
pub(super) struct Progress {
    last: String,
}

impl Progress {
    pub(super) fn show(&mut self, news: CaptureEvent) {
        match news {
            CaptureEvent::Far(far) => self.say(&far.to_string()),
            CaptureEvent::Word(word) => self.say(&word),
        }
    }

    pub(super) fn say(&mut self, line: &str) {
        if line == self.last {
            return;
        }
        let mut out = std::io::stderr();
        // Without a reader, the line is not needed.
        let _ = if out.is_terminal() {
            write!(out, "\r\x1b[Kxpu-top: {line}").and_then(|()| out.flush())
        } else {
            writeln!(out, "xpu-top: {line}")
        };
        line.clone_into(&mut self.last);
    }

    pub(super) fn end(&self) {
        if std::io::stderr().is_terminal() && !self.last.is_empty() {
            eprintln!();
        }
    }
}
