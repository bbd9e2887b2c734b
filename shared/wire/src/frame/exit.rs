//! How a rank failed: collector to viewers, topic `<job>/e`, and after each snapshot.

use std::{fmt::Write as _, time::Duration};

use serde::{Deserialize, Serialize};

use super::StackFrame;
use crate::{
    id::{JobName, Pid, Rank, Step},
    text,
    unit::Moment,
};

/// The innermost frames, this many of which a sentence names.
const NAMED: usize = 3;

/// Characters of an exception's message in a sentence.
const BRIEF: usize = 160;

/// An error that is not lasting explains an exception or an abort that follows within this time.
const RAISED_WITHIN: Duration = Duration::from_millis(500);
const ABORTED_WITHIN: Duration = Duration::from_secs(2);

/// `SIGABRT`
const ABORT: i32 = 6;

/// `SIGTERM`, with which launchers end the remaining ranks.
pub const TERM: i32 = 15;

/// One rank's end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankExit {
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    /// By its host's clock: as the rank noted it, else when its process was found gone.
    pub at: Moment,
    pub step: Option<Step>,
    pub ending: Ending,
    pub exception: Option<PythonException>,
    pub error: Option<ApiError>,
    /// By a core dump of its GPU.
    pub kernel: Option<FailedKernel>,
    pub asked: Option<Asked>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Ending {
    /// By `exit()`, or the end of `main`.
    Code(i32),
    Signal(FatalSignal),
    /// By the kernel, out of memory.
    OutOfMemory {
        /// The kernel's log names this process; otherwise some process of its control group, or its host, was
        /// OOM-killed.
        certain: bool,
        #[serde(deserialize_with = "crate::text::line")]
        told_by: String,
    },
    /// It noted nothing: SIGKILL, a signal that its own handlers kept, or an exit that bypassed the C
    /// library.
    Unnoted,
}

/// A signal that ended it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FatalSignal {
    pub number: i32,
    /// `si_code` (`sigaction(2)`).
    pub code: i32,
    /// The address it could not access, if the kernel sent the signal.
    pub address: Option<u64>,
    /// The sender, if it was a process.
    pub sender: Option<Pid>,
    /// Kernel thread id, and its name.
    pub thread: u32,
    #[serde(deserialize_with = "crate::text::line")]
    pub thread_name: String,
    /// Whether this certainly ended it; not so if the program had its own handler.
    pub certain: bool,
    /// Native frames, outermost first, at most [`RankExit::FRAMES`]; none if they could not be determined.
    pub frames: Vec<StackFrame>,
}

/// The thread of CUDA's driver in which it aborts a process, after the core dump at an exception of a GPU.
const CUDA_THREAD: &str = "cuda-EvtHandlr";

impl FatalSignal {
    fn is_by_cuda(&self) -> bool {
        self.number == ABORT && self.thread_name == CUDA_THREAD
    }
}

/// An uncaught Python exception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PythonException {
    #[serde(deserialize_with = "crate::text::line")]
    pub kind: String,
    #[serde(deserialize_with = "crate::text::lines")]
    pub message: String,
    /// The thread's name; empty for the main thread.
    #[serde(deserialize_with = "crate::text::line")]
    pub thread: String,
    /// Outermost first, at most [`RankExit::FRAMES`].
    pub frames: Vec<StackFrame>,
    pub at: Moment,
}

/// A function of CUDA, cuBLAS or NCCL that returned an error.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApiError {
    #[serde(deserialize_with = "crate::text::line")]
    pub function: String,
    pub code: i32,
    /// From then on CUDA returns an error for every call of the process.
    pub lasting: bool,
    pub at: Moment,
}

/// A kernel that an exception of the GPU stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FailedKernel {
    pub device: u32,
    /// Demangled; empty if no loaded module has it.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    /// `illegal address`
    #[serde(deserialize_with = "crate::text::line")]
    pub error: String,
    /// Where the exception occurred.
    pub block: [u32; 3],
    /// Blocks of the grid, and threads of a block.
    pub grid_size: [u32; 3],
    pub block_size: [u32; 3],
}

/// It received SIGTERM.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Asked {
    pub by: Pid,
    /// The name of that process; empty if it is unknown.
    #[serde(deserialize_with = "crate::text::line")]
    pub name: String,
    pub at: Moment,
}

/// Why a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCause {
    Oom,
    NcclError,
    CudaError,
    Exception,
    Signal,
    ExitCode,
    /// It recorded nothing.
    Dead,
}

impl RankExit {
    pub const FRAMES: usize = 64;

    /// The cause of the end, in one word.
    pub fn cause(&self) -> EndCause {
        let error = self.error.as_ref().filter(|error| error.lasting || self.explains(error));
        match (&self.ending, &self.exception) {
            (Ending::OutOfMemory { .. }, _) => EndCause::Oom,
            _ if error.is_some_and(|error| error.function.starts_with("nccl")) => EndCause::NcclError,
            _ if error.is_some() || self.kernel.is_some() => EndCause::CudaError,
            (Ending::Signal(signal), _) if signal.is_by_cuda() => EndCause::CudaError,
            (Ending::Code(_) | Ending::Unnoted, Some(_)) => EndCause::Exception,
            (Ending::Signal(_), _) => EndCause::Signal,
            (Ending::Code(_), None) => EndCause::ExitCode,
            (Ending::Unnoted, None) => EndCause::Dead,
        }
    }

    /// Whether a passing error came so shortly before the end that it is likely the cause; not so for an
    /// allocation that is tried again. Programs raise an exception for it, or a watchdog aborts them.
    fn explains(&self, error: &ApiError) -> bool {
        let (end, patience) = match (&self.exception, &self.ending) {
            (Some(exception), _) => (exception.at, RAISED_WITHIN),
            (None, Ending::Signal(signal)) if signal.number == ABORT => (self.at, ABORTED_WITHIN),
            _ => return false,
        };
        error.at <= end && end.since(error.at) < patience
    }

    /// Whether another process asked it to end, after other ranks had ended.
    pub fn was_asked_to_end(&self) -> bool {
        self.asked.is_some() || matches!(&self.ending, Ending::Signal(signal) if signal.number == TERM)
    }

    /// Whether this certainly was its end.
    pub fn is_certain(&self) -> bool {
        match &self.ending {
            Ending::Code(_) | Ending::Unnoted => true,
            Ending::Signal(signal) => signal.certain,
            Ending::OutOfMemory { certain, .. } => *certain,
        }
    }

    /// Frames of where it ended, outermost first: Python's, else native ones.
    pub fn frames(&self) -> &[StackFrame] {
        match (&self.exception, &self.ending) {
            (Some(exception), _) if !exception.frames.is_empty() => &exception.frames,
            (_, Ending::Signal(signal)) => &signal.frames,
            _ => &[],
        }
    }

    /// The rank's end, as a sentence without its subject: `raised ValueError: ...`.
    pub fn sentence(&self) -> String {
        let mut text = match &self.ending {
            Ending::OutOfMemory { certain: true, told_by } => {
                format!("was OOM-killed by the kernel ({told_by})")
            }
            Ending::OutOfMemory { certain: false, told_by } => {
                format!("was killed, likely by the OOM killer ({told_by})")
            }
            Ending::Signal(signal) => signal.sentence(),
            Ending::Code(code) => match &self.exception {
                Some(exception) => format!("raised {} and exited with code {code}", exception.sentence()),
                None => format!("exited with code {code}"),
            },
            Ending::Unnoted => match &self.exception {
                Some(exception) => format!("raised {} and ended", exception.sentence()),
                None => "ended without a record: SIGKILL, or an unknown signal".to_owned(),
            },
        };
        let shown = &self.frames()[self.frames().len().saturating_sub(NAMED)..];
        for (index, frame) in shown.iter().rev().enumerate() {
            let file = frame.file.rsplit('/').next().unwrap_or_default();
            let line = if frame.line > 0 { format!(":{}", frame.line) } else { String::new() };
            let joint = if index == 0 { ", in" } else { " <" };
            let _ = write!(text, "{joint} {} ({file}{line})", frame.function);
        }
        if let Some(error) = self.error.as_ref().filter(|error| error.lasting || self.explains(error)) {
            let ApiError { function, code, .. } = error;
            let name = crate::error_name::of(function, *code);
            let _ = write!(text, "; before that {function} failed with {code}{name}");
        }
        if let Some(kernel) = &self.kernel {
            let _ = write!(text, "; {}", kernel.sentence());
        }
        text
    }
}

impl FailedKernel {
    fn sentence(&self) -> String {
        let Self { device, name, error, block: [x, y, z], .. } = self;
        let name = if name.is_empty() { "a kernel of no loaded module" } else { name };
        let size = kernel_size(self.grid_size, self.block_size);
        format!("on GPU {device}, {name} failed: {error} in block {x},{y},{z}, {size}")
    }
}

/// `grid 3x1x1, block 64x1x1`
pub fn kernel_size(grid: [u32; 3], block: [u32; 3]) -> String {
    let of = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    format!("grid {}, block {}", of(grid), of(block))
}

impl FatalSignal {
    fn sentence(&self) -> String {
        let likely = if self.certain { "" } else { ", it seems," };
        let mut text = format!("was ended{likely} by {}", signal_name(self.number));
        match (self.address, self.sender) {
            (Some(address), _) => drop(write!(text, " at address {address:#x}")),
            (None, Some(sender)) => drop(write!(text, " from process {sender}")),
            (None, None) => {}
        }
        if !self.thread_name.is_empty() {
            let _ = write!(text, " in thread {}", self.thread_name);
        }
        text
    }
}

impl PythonException {
    fn sentence(&self) -> String {
        let first = self.message.lines().next().unwrap_or_default();
        let brief: String = first.chars().take(BRIEF).collect();
        let more = if first.chars().count() > BRIEF { "..." } else { "" };
        let colon = if brief.is_empty() { "" } else { ": " };
        format!("{}{colon}{brief}{more}", self.kind)
    }

    /// As the hook writes it: kind, thread and message in three parts with NUL between them, then a line for
    /// each frame, of function, file and line with tabs between them.
    pub fn parse(text: &str, at: Moment) -> Self {
        let clean = |text: &str| text::clean(text).into_owned();
        let mut parts = text.split('\0');
        let mut part = || parts.next().unwrap_or_default();
        let (kind, thread, message, frames) = (clean(part()), clean(part()), part(), part());
        let message = text::clean_lines(message).into_owned();
        let frame = |line: &str| {
            let mut fields = line.splitn(3, '\t');
            let (function, file) = (clean(fields.next()?), clean(fields.next()?));
            Some(StackFrame { function, file, line: fields.next()?.trim().parse().ok()? })
        };
        let frames = frames.lines().filter_map(frame).take(RankExit::FRAMES).collect();
        Self { kind, message, thread, frames, at }
    }
}

/// `SIGSEGV`
pub fn signal_name(number: i32) -> String {
    let name = match number {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        ABORT => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        10 => "SIGUSR1",
        11 => "SIGSEGV",
        12 => "SIGUSR2",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        TERM => "SIGTERM",
        24 => "SIGXCPU",
        31 => "SIGSYS",
        other => return format!("signal {other}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exit(ending: Ending) -> RankExit {
        RankExit {
            job: "j".into(),
            rank: Rank(3),
            pid: Pid(7),
            at: Moment(2_000_000_000),
            step: Some(Step(40)),
            ending,
            exception: None,
            error: None,
            kernel: None,
            asked: None,
        }
    }

    fn raised() -> PythonException {
        let text = "ValueError\0\0bad loss\nand more\0main\t/a/train.py\t30\nstep\t/a/train.py\t12\n";
        PythonException::parse(text, Moment(1_900_000_000))
    }

    #[test]
    fn an_exception_is_told_with_its_innermost_frames() {
        let exit = RankExit { exception: Some(raised()), ..exit(Ending::Code(1)) };
        assert_eq!(exit.cause(), EndCause::Exception);
        let expected =
            "raised ValueError: bad loss and exited with code 1, in step (train.py:12) < main (train.py:30)";
        assert_eq!(exit.sentence(), expected);
    }

    #[test]
    fn an_error_that_lasts_is_the_cause_and_one_that_passed_long_ago_is_not() {
        let error = |function: &str, code, lasting, at| {
            Some(ApiError { function: function.to_owned(), code, lasting, at: Moment(at) })
        };
        let with = |error| RankExit { exception: Some(raised()), error, ..exit(Ending::Code(1)) };
        let fault = with(error("cudaStreamSynchronize", 700, true, 1));
        assert_eq!(fault.cause(), EndCause::CudaError);
        let sentence = fault.sentence();
        assert!(
            sentence.contains("cudaStreamSynchronize failed with 700 (cudaErrorIllegalAddress)"),
            "{sentence}"
        );
        assert_eq!(with(error("ncclAllReduce", 6, false, 1_899_000_000)).cause(), EndCause::NcclError);
        let retried = with(error("cudaMalloc", 2, false, 1));
        assert_eq!(retried.cause(), EndCause::Exception);
        assert!(!retried.sentence().contains("cudaMalloc"));
    }

    #[test]
    fn a_kernel_that_failed_is_the_cause_and_is_told_last() {
        let kernel = FailedKernel {
            device: 2,
            name: "scatter".to_owned(),
            error: "illegal address".to_owned(),
            block: [7, 0, 0],
            grid_size: [64, 1, 1],
            block_size: [128, 1, 1],
        };
        let exit = RankExit { exception: Some(raised()), kernel: Some(kernel), ..exit(Ending::Code(1)) };
        assert_eq!(exit.cause(), EndCause::CudaError);
        let expected =
            "; on GPU 2, scatter failed: illegal address in block 7,0,0, grid 64x1x1, block 128x1x1";
        assert!(exit.sentence().ends_with(expected), "{}", exit.sentence());
    }

    #[test]
    fn what_a_foreign_process_says_is_fit_for_a_terminal() {
        let raised = PythonException::parse("E\u{1b}[2J\0t\0a\u{7}\0f\tg\tnone\nh\ti\t3", Moment(1));
        assert_eq!((raised.kind.as_str(), raised.message.as_str(), raised.frames.len()), ("E [2J", "a ", 1));
        assert_eq!(PythonException::parse("", Moment(1)).frames, []);

        // A class is named as its program likes: no name begins a line of a log, or turns the text after it.
        let text = "E\nERROR all is lost\u{202e}\0t\u{2028}\0a\u{202e}\nb\0f\u{202e}\tg\u{2028}\t3";
        let exception = PythonException::parse(text, Moment(1));
        let parts = [&exception.kind, &exception.thread, &exception.message];
        assert_eq!(parts, ["E ERROR all is lost ", "t ", "a \nb"]);
        let told = RankExit { exception: Some(exception), ..exit(Ending::Code(1)) }.sentence();
        assert_eq!(told, "raised E ERROR all is lost : a  and exited with code 1, in f  (g :3)");
    }
}
