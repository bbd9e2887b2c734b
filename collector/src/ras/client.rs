//! The client's side of the RAS protocol: lines of text, then a document until the connection ends.
//!
//! The exchange is bounded in time and in bytes, whatever program listens there. The processes of a host
//! share the port, and the kernel chooses one for each connection. If that process is stopped, or belongs to
//! another job, the client connects again.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use super::{
    address::{NotQueried, RasAddress},
    answer::Answer,
};

/// Largest number of connections for one question.
const CONNECTIONS: usize = 12;

/// Largest document in bytes: enough for about 30,000 ranks in communicators.
const MOST: usize = 16 << 20;

/// Longest line before the document, in bytes.
const LINE: usize = 1024;

/// Time limits of the client. A listener may be another program than RAS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// The limit for a connection, and for each line before the document.
    pub line: Duration,
    /// The limit for the document. RAS itself gives up on processes after ten seconds.
    pub document: Duration,
    /// The limit for all connections.
    pub all: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self { line: seconds(1), document: seconds(15), all: seconds(30) }
    }
}

/// Why a question has no answer. If several connections fail, the last reason in this order counts.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(super) enum Unanswered {
    #[error(
        "nothing listens there: RAS needs NCCL 2.24 or newer (xpu-top 2.28.7 or newer), without NCCL_RAS_ENABLE=0"
    )]
    NotListening,
    #[error("cannot connect: {0}")]
    Unreachable(String),
    #[error("the program that listens there is not NCCL's RAS")]
    Foreign,
    #[error("RAS of another job answers there; give each job on a host an NCCL_RAS_ADDR of its own")]
    OtherJob,
    #[error("the process that listens there does not answer; it may be stopped")]
    Silent,
    #[error("its answer was cut short, or was not complete in time")]
    Late,
    #[error("its answer has more than 16 MiB")]
    TooLong,
    #[error("its answer cannot be read: {0}")]
    Unreadable(String),
    #[error("its RAS does not support JSON, which NCCL 2.28.7 added; ask it with NCCL's own ncclras")]
    NoJson,
    #[error("{}", NotQueried::Creating)]
    Creating,
}

impl Unanswered {
    pub(super) fn at(&self, address: &RasAddress) -> String {
        format!("{address}: {self}")
    }

    /// Whether another process behind the same port may answer.
    fn is_of_one_process(&self) -> bool {
        matches!(self, Self::OtherJob | Self::Silent | Self::Late | Self::Foreign)
    }
}

/// Asks until an answer is about the job. Returns the answer and its bytes. Does not ask if `is_creating`:
/// then a process that may answer is creating a communicator.
pub(super) fn ask(
    address: &RasAddress,
    is_of_job: impl Fn(&Answer) -> bool,
    is_creating: impl Fn() -> bool,
    limits: Limits,
) -> Result<(Answer, Vec<u8>), Unanswered> {
    let deadline = Instant::now() + limits.all;
    let resolved = address.resolve().map_err(|error| Unanswered::Unreachable(error.to_string()))?;
    let mut why = Unanswered::NotListening;
    for _ in 0..CONNECTIONS {
        let mut may_change = false;
        for &to in &resolved {
            match ask_once(to, &is_creating, limits, deadline) {
                Ok((answer, raw)) if is_of_job(&answer) => return Ok((answer, raw)),
                Ok(_) => (may_change, why) = (true, why.max(Unanswered::OtherJob)),
                Err(error) => {
                    may_change |= error.is_of_one_process();
                    why = why.max(error);
                }
            }
        }
        if !may_change || Instant::now() >= deadline {
            break;
        }
    }
    Err(why)
}

fn ask_once(
    to: SocketAddr,
    is_creating: impl Fn() -> bool,
    limits: Limits,
    deadline: Instant,
) -> Result<(Answer, Vec<u8>), Unanswered> {
    let within = |time: Duration| deadline.min(Instant::now() + time);
    let mut talk = Query::connect(to, within(limits.line))?;
    // A listener that is not RAS gets this line and nothing else.
    let greeting = talk.ask("CLIENT PROTOCOL 2", within(limits.line))?;
    if !greeting.starts_with("SERVER PROTOCOL ") {
        return Err(Unanswered::Foreign);
    }
    // Older versions do not know this request. They get no further request, because some would crash.
    let format = talk.ask("SET FORMAT json", within(limits.line))?;
    if format != "OK" {
        return Err(if format.starts_with("ERROR") { Unanswered::NoJson } else { Unanswered::Foreign });
    }
    if is_creating() {
        return Err(Unanswered::Creating);
    }
    talk.say("STATUS", within(limits.line))?;
    let raw = talk.document(within(limits.document))?;
    Answer::parse(raw).map_err(|error| Unanswered::Unreadable(error.to_string()))
}

/// One connection, and the bytes read from it.
struct Query {
    stream: TcpStream,
    read: Vec<u8>,
}

impl Query {
    fn connect(to: SocketAddr, until: Instant) -> Result<Self, Unanswered> {
        let stream = TcpStream::connect_timeout(&to, left(until)?).map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused => Unanswered::NotListening,
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Unanswered::Silent,
            _ => Unanswered::Unreachable(error.to_string()),
        })?;
        Ok(Self { stream, read: Vec::new() })
    }

    fn say(&mut self, line: &str, until: Instant) -> Result<(), Unanswered> {
        let lost = |_: io::Error| Unanswered::Silent;
        self.stream.set_write_timeout(Some(left(until)?)).map_err(lost)?;
        self.stream.write_all(format!("{line}\n").as_bytes()).map_err(lost)
    }

    /// Sends a line. Returns the line that answers it.
    fn ask(&mut self, line: &str, until: Instant) -> Result<String, Unanswered> {
        self.say(line, until)?;
        loop {
            if let Some(end) = self.read.iter().position(|&byte| byte == b'\n') {
                let rest = self.read.split_off(end + 1);
                let line = std::mem::replace(&mut self.read, rest);
                return Ok(String::from_utf8_lossy(&line).trim_end().to_owned());
            }
            if self.read.len() > LINE {
                return Err(Unanswered::Foreign);
            }
            if self.more(until).map_err(|_lost| Unanswered::Silent)? == 0 {
                return Err(if self.read.is_empty() { Unanswered::Silent } else { Unanswered::Foreign });
            }
        }
    }

    /// Reads until the connection ends.
    fn document(mut self, until: Instant) -> Result<Vec<u8>, Unanswered> {
        while self.more(until).map_err(|_lost| Unanswered::Late)? > 0 {
            if self.read.len() > MOST {
                return Err(Unanswered::TooLong);
            }
        }
        Ok(self.read)
    }

    fn more(&mut self, until: Instant) -> io::Result<usize> {
        let late = |_: Unanswered| io::Error::from(io::ErrorKind::TimedOut);
        self.stream.set_read_timeout(Some(left(until).map_err(late)?))?;
        let mut piece = [0; 1 << 13];
        let length = loop {
            match self.stream.read(&mut piece) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.read.extend_from_slice(&piece[..length]);
        Ok(length)
    }
}

/// The time until `until`. It is never zero, because a socket's time limit of zero means no limit.
fn left(until: Instant) -> Result<Duration, Unanswered> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(Unanswered::Silent) } else { Ok(left) }
}

#[cfg(test)]
mod tests;
