//! Reads Python's threads and frames of a process, with py-spy.

use std::time::{Duration, Instant};

use py_spy::{Config, PythonSpy, StackTrace, config::LockingStrategy};
use xpu_wire::{
    frame::{RankStacks, Reading, StackFrame, ThreadStack},
    id::Pid,
};

use super::brief::brief;

/// Attempts on a running process: its memory may change between two reads.
const ATTEMPTS: usize = 3;

/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);

/// A Python thread, and separately its frames.
pub(super) struct PythonThread {
    pub stack: ThreadStack,
    /// The frames, innermost first, and for each whether it was called from C.
    pub frames: Vec<(StackFrame, bool)>,
}

/// All Python threads, and how they were read; or why they could not be read.
pub(super) fn threads(pid: Pid, numbers: &[u32]) -> Result<(Vec<PythonThread>, Reading), String> {
    let why = |error: &anyhow::Error| reason(pid, error);
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let process = py_spy::Pid::try_from(pid.0).map_err(|_out_of_range| "no such process".to_owned())?;
    let mut spy = PythonSpy::new(process, &config).map_err(|error| why(&error))?;
    let mut traces = spy.get_stack_traces();
    for _ in 1..ATTEMPTS {
        if traces.is_ok() {
            break;
        }
        std::thread::sleep(PAUSE);
        traces = spy.get_stack_traces();
    }
    let (traces, reading) = match traces {
        Ok(traces) => (traces, Reading::Running),
        Err(running) => {
            spy.config.blocking = LockingStrategy::Lock;
            let begun = Instant::now();
            let traces = spy.get_stack_traces();
            let held = begun.elapsed();
            let traces = traces.map_err(|held| format!("{}; and held: {held:#}", why(&running)))?;
            (traces, Reading::Held(held.into()))
        }
    };
    Ok((traces.into_iter().map(|trace| thread(pid, trace, numbers)).collect(), reading))
}

/// The frames of the main thread at one moment, and those of another thread that held the GIL, innermost
/// first.
pub(super) struct Look {
    pub main: Vec<StackFrame>,
    pub holder: Vec<StackFrame>,
}

/// Reads the main thread of one process repeatedly.
pub(super) struct Spy {
    pid: Pid,
    spy: PythonSpy,
}

impl Spy {
    /// Fails if the process is not a Python process, or cannot be read.
    pub(super) fn new(pid: Pid) -> Result<Self, String> {
        let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
        let process = py_spy::Pid::try_from(pid.0).map_err(|_out_of_range| "no such process".to_owned())?;
        let spy = PythonSpy::new(process, &config).map_err(|error| reason(pid, &error))?;
        Ok(Self { pid, spy })
    }

    /// One reading. `None` if the process's memory changed meanwhile.
    pub(super) fn look(&mut self) -> Option<Look> {
        let traces = self.spy.get_stack_traces().ok()?;
        let threads = traces.into_iter().map(|trace| thread(self.pid, trace, &[self.pid.0]));
        let (main, others): (Vec<_>, Vec<_>) = threads.partition(|thread| thread.stack.main);
        let holder = others.into_iter().find(|thread| thread.stack.owns_gil);
        let frames = |thread: PythonThread| thread.frames.into_iter().map(|(frame, _)| frame).collect();
        Some(Look { main: frames(main.into_iter().next()?), holder: holder.map(frames).unwrap_or_default() })
    }
}

/// A Python thread as py-spy read it.
pub(super) fn thread(pid: Pid, trace: StackTrace, numbers: &[u32]) -> PythonThread {
    let name = trace.thread_name.unwrap_or_default();
    let said = trace.os_thread_id.and_then(|number| u32::try_from(number).ok());
    let number = said.or_else(|| descriptor_number(pid, trace.thread_id)).filter(|n| numbers.contains(n));
    let depth = trace.frames.len();
    let frames: Vec<_> = trace
        .frames
        .into_iter()
        .take(RankStacks::FRAMES)
        .map(|frame| {
            let line = u32::try_from(frame.line).unwrap_or(0);
            let (function, file) = (brief(&frame.name), brief(&frame.filename));
            (StackFrame { function, file, line }, frame.is_entry || frame.is_shim_entry)
        })
        .collect();
    let stack = ThreadStack {
        thread: number,
        main: number == Some(pid.0) || (number.is_none() && name == "MainThread"),
        name: brief(&name),
        owns_gil: trace.owns_gil,
        inside: None,
        task: None,
        more_frames: u32::try_from(depth - frames.len()).unwrap_or(u32::MAX),
        frames: Vec::new(),
    };
    PythonThread { stack, frames }
}

/// The kernel id of a thread from glibc's thread descriptor, whose address is Python's thread id before 3.11.
/// This is a guess, used only if the process has such a thread.
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
fn descriptor_number(pid: Pid, descriptor: u64) -> Option<u32> {
    const OFFSET: usize = 720;
    let mut number = 0_u32;
    let local = libc::iovec { iov_base: (&raw mut number).cast(), iov_len: size_of::<u32>() };
    let address = (descriptor as usize).checked_add(OFFSET)?;
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: size_of::<u32>() };
    // SAFETY: the local part is all of `number`; the kernel checks the remote part, which is only read.
    let read =
        unsafe { libc::process_vm_readv(pid.0 as libc::pid_t, &raw const local, 1, &raw const remote, 1, 0) };
    (read == size_of::<u32>() as isize).then_some(number)
}

#[cfg(not(all(target_arch = "x86_64", target_env = "gnu")))]
fn descriptor_number(_pid: Pid, _descriptor: u64) -> Option<u32> {
    None
}

/// Why there are no Python frames, and the remedy.
pub(super) fn reason(pid: Pid, error: &anyhow::Error) -> String {
    if is_refused(pid) {
        let scope = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok();
        let remedy = match scope.as_deref().map(str::trim) {
            Some("1") => "kernel.yama.ptrace_scope is 1; start the collector as root, or set it to 0",
            Some("2" | "3") => "kernel.yama.ptrace_scope allows only root, or no process",
            _ => "it belongs to another user or is protected, or this container lacks CAP_SYS_PTRACE",
        };
        return format!("no Python frames: the kernel does not allow reading its memory: {remedy}");
    }
    // The innermost cause, because the outer causes only describe the steps of py-spy.
    brief(&format!("no Python frames: {}", error.root_cause()))
}

/// Whether the kernel denies reading the process.
fn is_refused(pid: Pid) -> bool {
    let refused = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    std::fs::File::open(format!("/proc/{pid}/mem")).is_err_and(refused)
}
