//! The exit note of a process: how it ends. Signal handlers write it too; the collector reads it when the
//! process is gone.
//!
//! Each part is claimed, written, then published. Nothing here takes a lock, allocates memory or makes a
//! system call.

mod bytes;
mod fault;

pub use bytes::Bytes;
pub use fault::{Claimed, Fault, FaultReading, REGISTERS};

use super::sync::{Acquire, AtomicU64, Relaxed, Release};
use crate::unit::Moment;

/// Words for an exception: its kind, message and frames.
const EXCEPTION: usize = 1024;

/// Words of the name of a function of CUDA or NCCL.
const NAME: usize = 6;

/// Words of a process's name (`proc_pid_comm(5)`).
const COMM: usize = 2;

/// Bit above a code: set once a code was noted.
const NOTED: u64 = 1 << 32;

#[repr(C)]
#[derive(Debug)]
pub struct ExitNote {
    /// The code it is about to exit with, and since when.
    code: AtomicU64,
    code_at: AtomicU64,
    /// Written by older hooks that handled SIGTERM: when the process was asked to end, by which process, and
    /// that process's name.
    asked_at: AtomicU64,
    asked_by: AtomicU64,
    asker: Bytes<COMM>,
    /// The first error after which CUDA returns only errors, and the last of the others.
    lasting: ErrorLine,
    passing: ErrorLine,
    /// The last GPU memory that was refused.
    refused: RefusedLine,
    exception_at: AtomicU64,
    exception: Bytes<EXCEPTION>,
    pub fault: Fault,
}

impl ExitNote {
    /// Notes that the process is about to exit. The last call counts.
    pub fn exits(&self, code: i32, now: Moment) {
        self.code_at.store(now.0, Relaxed);
        self.code.store(NOTED | u64::from(code.cast_unsigned()), Release);
    }

    /// Notes that the process was asked to end. The first call counts.
    pub fn asked(&self, by: u32, asker: &[u8], now: Moment) {
        if self.asked_at.load(Relaxed) == 0 {
            self.asked_by.store(u64::from(by), Relaxed);
            self.asker.write(asker);
            self.asked_at.store(now.0, Release);
        }
    }

    /// Whether it noted an exit code.
    pub fn has_exit_code(&self) -> bool {
        self.code.load(Relaxed) & NOTED != 0
    }

    /// Removes the note of an exit: a child that shares the process's memory (`vfork`) exited, not the
    /// process.
    pub fn clear_exit(&self) {
        self.code.store(0, Relaxed);
    }

    /// Notes an uncaught Python exception. The last one counts.
    pub fn raised(&self, text: &[u8], now: Moment) {
        self.exception_at.store(0, Relaxed);
        self.exception.write(text);
        self.exception_at.store(now.0, Release);
    }

    /// Notes that a function of CUDA or NCCL returned an error.
    pub fn failed(&self, function: &[u8], code: i32, lasting: bool, now: Moment) {
        if lasting {
            self.lasting.note(function, code, now, true);
        } else {
            self.passing.note(function, code, now, false);
        }
    }

    /// Notes that CUDA had no memory of this size left. `held`: what the process had allocated and not freed.
    /// `free`: free memory of the GPU, if the driver reported it.
    pub fn refused(&self, bytes: u64, held: u64, free: Option<u64>, now: Moment) {
        self.refused.note(bytes, held, free, now);
    }

    pub fn read(&self) -> LastReading {
        let code = self.code.load(Acquire);
        let asked_at = Moment(self.asked_at.load(Acquire));
        let exception_at = Moment(self.exception_at.load(Acquire));
        let there = |at: Moment| at != Moment(0);
        LastReading {
            exit: (code & NOTED != 0).then(|| (code as u32 as i32, Moment(self.code_at.load(Relaxed)))),
            asked: there(asked_at).then(|| (self.asked_by.load(Relaxed) as u32, self.asker.text(), asked_at)),
            lasting: self.lasting.read(),
            passing: self.passing.read(),
            refused: self.refused.read(),
            exception: there(exception_at).then(|| (self.exception.text(), exception_at)),
            fault: self.fault.read(),
        }
    }
}

/// A process's note of its end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LastReading {
    pub exit: Option<(i32, Moment)>,
    /// The process that requested the end, its name, and when.
    pub asked: Option<(u32, String, Moment)>,
    pub lasting: Option<ErrorReading>,
    pub passing: Option<ErrorReading>,
    pub refused: Option<RefusedReading>,
    /// The hook's text: see [`crate::frame::PythonException::parse`].
    pub exception: Option<(String, Moment)>,
    pub fault: Option<FaultReading>,
}

/// An error that a function returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorReading {
    pub function: String,
    pub code: i32,
    pub at: Moment,
}

/// GPU memory that was refused, and what the process held then. Bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedReading {
    pub bytes: u64,
    pub held: u64,
    /// Free memory of the GPU, as the driver reports it.
    pub free: Option<u64>,
    pub at: Moment,
}

#[repr(C)]
#[derive(Debug)]
struct RefusedLine {
    busy: AtomicU64,
    at: AtomicU64,
    bytes: AtomicU64,
    held: AtomicU64,
    /// Free memory plus one; 0 if it is unknown.
    free: AtomicU64,
}

impl RefusedLine {
    fn note(&self, bytes: u64, held: u64, free: Option<u64>, now: Moment) {
        // If two threads fail at once, one note is enough.
        if self.busy.swap(1, Acquire) != 0 {
            return;
        }
        self.at.store(0, Relaxed);
        self.bytes.store(bytes, Relaxed);
        self.held.store(held, Relaxed);
        self.free.store(free.map_or(0, |free| free + 1), Relaxed);
        self.at.store(now.0, Release);
        self.busy.store(0, Release);
    }

    fn read(&self) -> Option<RefusedReading> {
        let at = Moment(self.at.load(Acquire));
        let (bytes, held) = (self.bytes.load(Relaxed), self.held.load(Relaxed));
        let free = self.free.load(Relaxed).checked_sub(1);
        (at != Moment(0)).then_some(RefusedReading { bytes, held, free, at })
    }
}

#[repr(C)]
#[derive(Debug)]
struct ErrorLine {
    busy: AtomicU64,
    at: AtomicU64,
    code: AtomicU64,
    function: Bytes<NAME>,
}

impl ErrorLine {
    fn note(&self, function: &[u8], code: i32, now: Moment, first: bool) {
        // If two threads fail at once, one note is enough.
        if (first && self.at.load(Relaxed) != 0) || self.busy.swap(1, Acquire) != 0 {
            return;
        }
        self.at.store(0, Relaxed);
        self.code.store(u64::from(code.cast_unsigned()), Relaxed);
        self.function.write(function);
        self.at.store(now.0, Release);
        self.busy.store(0, Release);
    }

    fn read(&self) -> Option<ErrorReading> {
        let at = Moment(self.at.load(Acquire));
        let code = self.code.load(Relaxed) as u32 as i32;
        (at != Moment(0)).then(|| ErrorReading { function: self.function.text(), code, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<ExitNote> {
        // SAFETY: it consists of atomic words, for which zero is a valid value.
        unsafe { Box::<ExitNote>::new_zeroed().assume_init() }
    }

    #[test]
    fn a_fresh_page_has_no_exit_note() {
        assert_eq!(empty().read(), LastReading::default());
    }

    #[test]
    fn the_first_lasting_error_stays_and_the_last_passing_one() {
        let words = empty();
        words.failed(b"cudaMalloc", 2, false, Moment(1));
        words.failed(b"cublasGemmEx", 13, false, Moment(2));
        words.failed(b"cudaStreamSynchronize", 700, true, Moment(3));
        words.failed(b"cudaFree", 700, true, Moment(4));
        let read = words.read();
        let of = |error: Option<ErrorReading>| error.map(|error| (error.function, error.code, error.at.0));
        assert_eq!(of(read.lasting), Some(("cudaStreamSynchronize".to_owned(), 700, 3)));
        assert_eq!(of(read.passing), Some(("cublasGemmEx".to_owned(), 13, 2)));
    }

    #[test]
    fn the_last_memory_that_was_refused_stays() {
        let words = empty();
        words.refused(1 << 30, 5 << 30, None, Moment(1));
        words.refused(2 << 20, 4 << 30, Some(1 << 20), Moment(2));
        let last = RefusedReading { bytes: 2 << 20, held: 4 << 30, free: Some(1 << 20), at: Moment(2) };
        assert_eq!(words.read().refused, Some(last));
    }

    #[test]
    fn an_exit_with_a_negative_code_is_what_it_was() {
        let words = empty();
        words.exits(-1, Moment(7));
        words.asked(12, b"torchrun\n", Moment(5));
        words.asked(13, b"bash", Moment(6));
        let read = words.read();
        assert_eq!(read.exit, Some((-1, Moment(7))));
        assert_eq!(read.asked, Some((12, "torchrun".to_owned(), Moment(5))));
    }
}
