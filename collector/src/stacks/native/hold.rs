//! Stops one thread while its registers and the top of its stack are copied.

use std::{
    io,
    mem::{MaybeUninit, zeroed},
    thread,
    time::{Duration, Instant},
};

use framehop::x86_64::{Reg, UnwindRegsX86_64};
use xpu_wire::{id::Pid, ledger::FaultReading};

/// Largest number of a stack's pages that are copied.
const PAGES: usize = 64;

const PAGE: usize = 4096;

/// The area below the stack pointer that a function may use.
const RED_ZONE: u64 = 128;

/// Longest wait for a thread to stop. A thread in an uninterruptible system call does not stop, and is
/// skipped.
const PATIENCE: Duration = Duration::from_millis(20);

pub(super) struct Copied {
    pub number: u32,
    pub ip: u64,
    registers: libc::user_regs_struct,
    from: u64,
    stack: Vec<u8>,
    pub held: Duration,
}

impl Copied {
    /// The registers and the stack that a signal handler noted.
    pub(super) fn of_fault(fault: &FaultReading) -> Self {
        // SAFETY: the structure consists of integers, for which zero is a valid value.
        let mut registers: libc::user_regs_struct = unsafe { zeroed() };
        let [rip, rsp, rbp, rbx, r12, r13, r14, r15] = fault.registers;
        (registers.rip, registers.rsp, registers.rbp, registers.rbx) = (rip, rsp, rbp, rbx);
        (registers.r12, registers.r13, registers.r14, registers.r15) = (r12, r13, r14, r15);
        let stack = fault.stack.clone();
        Self { number: fault.thread, ip: rip, registers, from: fault.stack_from, stack, held: Duration::ZERO }
    }

    /// The state that a signal interrupted, if the handler's return address is at `trampoline` or one byte
    /// after it. The kernel put the registers on the stack next to that address (`rt_sigframe`). Few
    /// unwinders can read the form in which unwind tables describe this.
    pub(super) fn below_handler(&self, trampoline: u64) -> Option<Self> {
        /// Offset from the return address: the context begins with flags, link and stack.
        const CONTEXT: u64 = 8 + 8 + 8 + 24;
        let words = self.stack.as_chunks::<8>().0;
        let mut places = (self.from..).step_by(8).zip(words).filter(|(_, word)| {
            let word = u64::from_le_bytes(**word);
            word == trampoline || word == trampoline.wrapping_add(1)
        });
        places.find_map(|(at, _)| {
            let register = |index: libc::c_int| self.word(at + CONTEXT + 8 * index as u64);
            let (ip, sp) = (register(libc::REG_RIP)?, register(libc::REG_RSP)?);
            let bottom = self.from + self.stack.len() as u64;
            if !(at..bottom).contains(&sp) || ip == 0 {
                return None;
            }
            let mut registers = self.registers;
            (registers.rip, registers.rsp) = (ip, sp);
            registers.rbp = register(libc::REG_RBP)?;
            registers.rbx = register(libc::REG_RBX)?;
            registers.r12 = register(libc::REG_R12)?;
            registers.r13 = register(libc::REG_R13)?;
            registers.r14 = register(libc::REG_R14)?;
            registers.r15 = register(libc::REG_R15)?;
            Some(Self { ip, registers, stack: self.stack.clone(), ..*self })
        })
    }

    pub(super) fn registers(&self) -> UnwindRegsX86_64 {
        let from = &self.registers;
        let mut to = UnwindRegsX86_64::new(from.rip, from.rsp, from.rbp);
        let all = [
            (Reg::RBX, from.rbx),
            (Reg::R12, from.r12),
            (Reg::R13, from.r13),
            (Reg::R14, from.r14),
            (Reg::R15, from.r15),
        ];
        for (register, value) in all {
            to.set(register, value);
        }
        to
    }

    /// The word at an address of the copied stack.
    pub(super) fn word(&self, address: u64) -> Option<u64> {
        let at = usize::try_from(address.checked_sub(self.from)?).ok()?;
        self.stack.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }
}

/// Stops a thread and copies it; `None` if it ended or does not stop.
///
/// A thread that does not stop in time would stop later, when it leaves the kernel, and stay stopped as long
/// as its tracer lives. So a separate thread is the tracer, and ends with this call.
pub(super) fn copy(pid: Pid, number: u32) -> io::Result<Option<Copied>> {
    thread::scope(|scope| scope.spawn(|| trace(pid, number)).join())
        .unwrap_or_else(|_| Err(io::Error::other("it could not be copied")))
}

fn trace(pid: Pid, number: u32) -> io::Result<Option<Copied>> {
    let thread = number as libc::pid_t;
    request(libc::PTRACE_SEIZE, thread, 0)?;
    let begun = Instant::now();
    // From here on, this thread traces the other. If this thread ends, the kernel releases the other.
    request(libc::PTRACE_INTERRUPT, thread, 0)?;
    let Some(signal) = wait(thread, begun + PATIENCE)? else { return Ok(None) };
    let mut registers = MaybeUninit::<libc::user_regs_struct>::uninit();
    // SAFETY: the thread is stopped, and this thread is its tracer. The kernel fills the whole struct.
    let read = unsafe { libc::ptrace(libc::PTRACE_GETREGS, thread, 0, registers.as_mut_ptr()) };
    let copied = (read == 0).then(|| {
        // SAFETY: the kernel reported that it filled the struct.
        let registers = unsafe { registers.assume_init() };
        let from = registers.rsp.saturating_sub(RED_ZONE);
        (registers, from, stack(pid, from))
    });
    // A pending signal is passed on.
    request(libc::PTRACE_DETACH, thread, signal)?;
    let held = begun.elapsed();
    Ok(copied.map(|(registers, from, stack)| Copied {
        number,
        ip: registers.rip,
        registers,
        from,
        stack,
        held,
    }))
}

/// Waits until the thread has stopped. Returns the signal that it was about to receive (0: none).
fn wait(thread: libc::pid_t, until: Instant) -> io::Result<Option<libc::c_int>> {
    loop {
        let mut status = 0;
        // SAFETY: the pointer is to a live integer.
        let waited = unsafe { libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG) };
        match waited {
            0 if Instant::now() < until => thread::yield_now(),
            0 => return Ok(None),
            -1 => return Err(io::Error::last_os_error()),
            _ if !libc::WIFSTOPPED(status) => return Ok(None),
            _ if status >> 16 == libc::PTRACE_EVENT_STOP => return Ok(Some(0)),
            _ => return Ok(Some(libc::WSTOPSIG(status))),
        }
    }
}

fn request(request: libc::c_uint, thread: libc::pid_t, data: libc::c_int) -> io::Result<()> {
    // SAFETY: these requests touch no memory of this process.
    match unsafe { libc::ptrace(request, thread, 0, libc::c_long::from(data)) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Reads the pages of the stack that exist, up to the limit.
fn stack(pid: Pid, from: u64) -> Vec<u8> {
    let mut bytes = vec![0; PAGES * PAGE];
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // The kernel reads an iovec as a whole or not at all, so each page has its own. SAFETY: an iovec of zeros
    // is valid.
    let mut remote: [libc::iovec; PAGES] = unsafe { zeroed() };
    let mut at = from as usize;
    for piece in &mut remote {
        let length = PAGE - at % PAGE;
        *piece = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: length };
        at = at.saturating_add(length);
    }
    // SAFETY: the local part is all of `bytes`; the kernel checks the remote part, which is only read.
    let read = unsafe {
        libc::process_vm_readv(
            pid.0 as libc::pid_t,
            &raw const local,
            1,
            remote.as_ptr(),
            PAGES as libc::c_ulong,
            0,
        )
    };
    bytes.truncate(usize::try_from(read).unwrap_or(0));
    bytes
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
