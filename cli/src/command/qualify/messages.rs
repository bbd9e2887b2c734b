//! The last lines that the program on another host writes to its standard error. If the program ends, they
//! show why.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Read},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

/// Lines that are kept.
const LINES: usize = 4;

/// How long the last lines of a program that has ended may take. The pipe may stay open, because ssh leaves a
/// process behind that shares its connection.
const LAST_LINES: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Messages {
    lines: Arc<Mutex<VecDeque<String>>>,
    /// Disconnected once the pipe is closed and completely read.
    end: mpsc::Receiver<()>,
}

impl Messages {
    pub(super) fn of(pipe: impl Read + Send + 'static) -> Self {
        let lines = Arc::new(Mutex::new(VecDeque::new()));
        let keep = Arc::clone(&lines);
        let (reads, end) = mpsc::channel();
        thread::spawn(move || {
            let _reads: mpsc::Sender<()> = reads;
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut kept = keep.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > LINES {
                    kept.pop_front();
                }
            }
        });
        Self { lines, end }
    }

    /// The last line that is not empty, of a program that has ended.
    pub(super) fn last(&self) -> Option<String> {
        let _ = self.end.recv_timeout(LAST_LINES);
        let lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.iter().rev().map(|line| line.trim()).find(|line| !line.is_empty()).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Write as _, pipe};

    use super::*;

    #[test]
    fn the_last_line_is_awaited_until_the_pipe_is_closed() {
        let (out, mut program) = pipe().unwrap();
        let messages = Messages::of(out);
        let writer = thread::spawn(move || {
            program.write_all(b"Warning: added host\nPermission denied (publickey).\n\n").unwrap();
        });
        assert_eq!(messages.last().as_deref(), Some("Permission denied (publickey)."));
        writer.join().unwrap();
    }
}
