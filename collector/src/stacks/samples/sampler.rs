//! A process that samples one rank, and the pipes to it.

use std::{
    io::{self, PipeReader, PipeWriter, Read as _, Write as _},
    os::{
        fd::{AsRawFd as _, RawFd},
        unix::process::CommandExt as _,
    },
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use xpu_wire::{
    codec,
    frame::{Body, Frame, PythonSamples, Request, SampleAccount, SampleOrder},
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Parts, Target, of_order};
use crate::address::Address;

/// Bytes taken from one pipe before the others have their turn.
const TURN: usize = 1 << 20;

/// Time in addition to the capture's own limit, for attaching and for naming native frames.
const SPARE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Sampler {
    job: JobName,
    rank: Rank,
    order: SampleOrder,
    viewer: Address,
    child: Child,
    /// Closing this pipe ends the child.
    order_to: Option<PipeWriter>,
    pipe: PipeReader,
    /// Output that is not a complete part yet.
    bytes: Vec<u8>,
    /// The number of the next part.
    next: u32,
    deadline: Instant,
    has_sent_all: bool,
}

impl Sampler {
    pub(super) fn start(
        program: &Path,
        target: &Target,
        ledger: Option<u32>,
        order: &SampleOrder,
        viewer: &Address,
        now: Instant,
    ) -> io::Result<Self> {
        let ((pipe, end), (order_from, mut order_to)) = (io::pipe()?, io::pipe()?);
        // SAFETY: changes the flags of a descriptor this process owns.
        if unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let child = Command::new(program)
            .arg0("xpu-collector")
            .args(["--sample-python", &target.pid.to_string()])
            .args(ledger.map(|descriptor| format!("--ledger={descriptor}")))
            .env_remove("LD_PRELOAD")
            .stdin(order_from)
            .stdout(end)
            .stderr(Stdio::null())
            .spawn()?;
        let request = Request::Sample { job: target.job.clone(), ranks: vec![target.rank], order: *order };
        let body = Body::Request(request);
        // The pipe is empty, so a frame this small fits at once.
        order_to.write_all(&codec::encode(&Frame {
            host: "".into(),
            number: 0,
            now: Moment::now(),
            lost: 0,
            body,
        }))?;
        let length = order.window.map_or(Duration::ZERO, |window| window.length.into());
        Ok(Self {
            job: target.job.clone(),
            rank: target.rank,
            order: *order,
            viewer: viewer.clone(),
            child,
            order_to: Some(order_to),
            pipe,
            bytes: Vec::new(),
            next: 0,
            deadline: now + Duration::from(order.capture.limit) + length + SPARE,
            has_sent_all: false,
        })
    }

    pub(super) fn is_of(&self, job: &JobName, rank: Rank) -> bool {
        (&self.job, self.rank) == (job, rank)
    }

    pub(super) fn number(&self) -> u64 {
        self.order.capture.number
    }

    pub(super) fn end(&mut self) {
        self.order_to = None;
    }

    pub(super) fn is_ending(&self) -> bool {
        self.order_to.is_none()
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.pipe.as_raw_fd()
    }

    /// Takes the process's output. `true` when no more follows.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let mut piece = [0; 1 << 14];
        let mut taken = 0;
        while taken < TURN && self.bytes.len() <= codec::LARGEST_FRAME {
            match self.pipe.read(&mut piece) {
                Ok(0) => return true,
                Ok(count) => {
                    self.bytes.extend_from_slice(&piece[..count]);
                    taken += count;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
        }
        now >= self.deadline
    }

    /// The complete parts of the output.
    pub(super) fn parts(&mut self) -> Parts {
        let mut parts = Vec::new();
        while let Some(header) = self.bytes.first_chunk::<{ codec::HEADER }>() {
            let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
            let Some(frame) = self.bytes.get(..codec::HEADER + length) else { break };
            let decoded = codec::decode(frame).map(|frame| frame.body);
            self.bytes.drain(..codec::HEADER + length);
            if let Ok(Body::PythonSamples(part)) = decoded
                && self.next < PythonSamples::PARTS
            {
                parts.push(self.part(part));
            }
        }
        parts
    }

    /// Adds the rank's identity, which the sampler does not know.
    fn part(&mut self, part: PythonSamples) -> (Address, PythonSamples) {
        let number = self.number();
        let part = PythonSamples { number, job: self.job.clone(), rank: self.rank, part: self.next, ..part };
        self.next += 1;
        self.has_sent_all |= part.account.is_some();
        (self.viewer.clone(), part)
    }

    /// A last part in place of the one that the sampler ended without sending.
    pub(super) fn last(&mut self) -> Option<(Address, PythonSamples)> {
        let why = "the process that sampled it ended early".to_owned();
        let account = SampleAccount { why: Some(why), ..of_order(&self.order) };
        let part = PythonSamples { account: Some(account), ..PythonSamples::default() };
        (!self.has_sent_all).then(|| self.part(part))
    }

    pub(super) fn finish(mut self) -> Child {
        let _ = self.child.kill();
        self.child
    }
}
