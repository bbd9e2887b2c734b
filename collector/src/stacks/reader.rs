//! A process that reads one rank, and its output pipe.

use std::{
    io::{self, PipeReader, Read as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use xpu_wire::{
    codec,
    frame::{Body, RankStacks},
};

use super::{Answer, Wanted};

/// Bytes taken from one pipe before the others have their turn.
const TURN: usize = 1 << 20;

/// Largest output in bytes: three frames.
const MOST: usize = 3 * codec::LARGEST_FRAME;

#[derive(Debug)]
pub(super) struct Reader {
    pub wanted: Wanted,
    pub deadline: Instant,
    child: Child,
    pipe: PipeReader,
    bytes: Vec<u8>,
    late: bool,
}

impl Reader {
    pub(super) fn start(program: &Path, wanted: Wanted, now: Instant) -> Result<Self, Box<Answer>> {
        let deadline = now + wanted.limit();
        match spawn(program, &wanted) {
            Ok((child, pipe)) => Ok(Self { wanted, deadline, child, pipe, bytes: Vec::new(), late: false }),
            Err(error) => {
                let why = format!("cannot start a process to read it: {error}");
                Err(Box::new(wanted.unread(why)))
            }
        }
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Takes the process's output. `true` when no more follows.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let mut piece = [0; 1 << 13];
        let before = self.bytes.len();
        while self.bytes.len() - before < TURN {
            match self.pipe.read(&mut piece) {
                Ok(0) => return true,
                Ok(count) => self.bytes.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        self.late = now >= self.deadline;
        self.late || self.bytes.len() > MOST
    }

    /// The last complete frame of the output, and the process, which may not have ended.
    pub(super) fn finish(mut self) -> (Answer, Child) {
        let _ = self.child.kill();
        let answer = match last_frame(&self.bytes) {
            Some(mut stacks) => {
                if self.late && self.wanted.target.gpus.is_none() {
                    let limit = self.wanted.limit().as_secs();
                    stacks
                        .why
                        .insert(0, format!("no Python frames: reading them took longer than {limit} s"));
                    stacks.why.truncate(RankStacks::WHY);
                }
                let target = &self.wanted.target;
                (stacks.job, stacks.rank) = (target.job.clone(), target.rank);
                for thread in &mut stacks.threads {
                    let here = target.inside.iter().find(|inside| Some(inside.thread) == thread.thread);
                    thread.inside = here.copied();
                }
                self.wanted.answer(stacks)
            }
            None if self.late => {
                let limit = self.wanted.limit().as_secs();
                self.wanted.unread(format!("reading the request took longer than {limit} s"))
            }
            None => self.wanted.unread("the process that read it ended without an answer".to_owned()),
        };
        (answer, self.child)
    }
}

fn spawn(program: &Path, wanted: &Wanted) -> io::Result<(Child, PipeReader)> {
    let (pipe, end) = io::pipe()?;
    // SAFETY: changes the flags of a descriptor this process owns.
    if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let child = Command::new(program)
        .arg0("xpu-collector")
        .args(["--read-stacks", &wanted.target.pid.to_string()])
        .args(wanted.target.natively.then_some("--native"))
        .args(wanted.target.gpus.map(|_| "--gpus"))
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .stdout(end)
        .stderr(Stdio::null())
        .spawn()?;
    Ok((child, pipe))
}

/// The last complete frame. The kernel's data comes first, then Python's frames, then the kernels on the
/// GPUs, if they could be read.
fn last_frame(mut bytes: &[u8]) -> Option<RankStacks> {
    let mut last = None;
    while let Some(header) = bytes.first_chunk::<{ codec::HEADER }>() {
        let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let Some(frame) = bytes.get(..codec::HEADER + length) else { break };
        if let Ok(Body::Stacks(stacks)) = codec::decode(frame).map(|frame| frame.body) {
            last = Some(stacks);
        }
        bytes = &bytes[codec::HEADER + length..];
    }
    last
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        frame::Frame,
        id::{Pid, Rank},
        unit::Moment,
    };

    use super::*;

    fn frame(why: &str) -> Vec<u8> {
        let stacks = RankStacks::unread("j".into(), Rank(0), Pid(1), why.to_owned());
        let body = Body::Stacks(stacks);
        codec::encode(&Frame { host: "".into(), number: 0, now: Moment(0), lost: 0, body })
    }

    #[test]
    fn the_last_whole_word_counts() {
        let [first, second] = [frame("first"), frame("second")];
        let both = [&first[..], &second].concat();
        let why = |bytes: &[u8]| last_frame(bytes).map(|stacks| stacks.why[0].clone());
        assert_eq!(why(&both).as_deref(), Some("second"));
        assert_eq!(why(&both[..both.len() - 1]).as_deref(), Some("first"));
        assert_eq!(why(&first[..5]), None);
        assert_eq!(why(b"Segmentation fault"), None);
    }
}
