//! Reads native frames. Each thread is stopped for a moment while its registers and stack are copied. The
//! frames are computed from the copy while the thread runs again.

mod hold;
mod join;
mod modules;

use std::{collections::HashMap, time::Duration};

use framehop::{FrameAddress, Unwinder as _, x86_64};
use hold::Copied;
pub(super) use join::join;
use modules::Modules;
use serde::{Deserialize, Serialize};
use xpu_wire::{
    frame::{RankStacks, StackFrame},
    id::Pid,
    ledger::FaultReading,
};

/// Number of signal handlers through which frames are unwound to the code that they interrupted.
const HANDLERS: usize = 4;

/// A frame of a process that has ended, and its address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct CrashFrame {
    #[serde(flatten)]
    pub frame: StackFrame,
    /// The address in the process.
    pub address: u64,
    /// The offset in the file of `frame`, as `addr2line` takes it.
    pub offset: u64,
}

/// A thread's native frames, the innermost first.
pub(super) struct NativeThread {
    pub number: u32,
    pub frames: Vec<StackFrame>,
}

/// The native frames of a process.
#[derive(Default)]
pub(super) struct Native {
    pub threads: Vec<NativeThread>,
    /// The longest time that any thread was stopped; `None` if none was.
    pub longest: Option<Duration>,
}

/// The native frames of these threads, or why there are none.
pub(super) fn threads(pid: Pid, numbers: &[u32]) -> Result<Native, String> {
    let mut copied: Vec<Copied> = Vec::new();
    let mut refusal = None;
    for &number in numbers.iter().take(RankStacks::THREADS) {
        match hold::copy(pid, number) {
            Ok(Some(copy)) => copied.push(copy),
            // The thread ended, or does not leave the kernel.
            Ok(None) => {}
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => refusal = Some(error),
            Err(_) => {}
        }
    }
    if copied.is_empty() {
        let why = refusal.map_or_else(|| "no thread could be stopped".to_owned(), |error| error.to_string());
        return Err(format!("no native frames: ptrace: {why}"));
    }
    let longest = copied.iter().map(|copy| copy.held).max();
    let modules = Modules::of(pid);
    let unwinder = modules.unwinder();
    let mut cache = x86_64::CacheX86_64::new();
    let addresses: Vec<_> =
        copied.iter().map(|copy| (copy.number, unwind(copy, &unwinder, &mut cache))).collect();
    let names = modules.names(addresses.iter().flat_map(|(_, addresses)| addresses.iter().copied()));
    let named = |address: &u64| names.get(address).cloned();
    let threads = addresses
        .iter()
        .map(|(number, addresses)| {
            let mut frames: Vec<_> = addresses.iter().filter_map(named).collect();
            frames.dedup_by(|one, other| one == other && one.function == modules::UNNAMED);
            NativeThread { number: *number, frames }
        })
        .collect();
    Ok(Native { threads, longest })
}

/// Reads the native frames of one process repeatedly. Opens its files only once.
pub(super) struct Unwinding {
    modules: Modules,
    unwinder: modules::Unwinder,
    cache: x86_64::CacheX86_64,
}

impl Unwinding {
    /// Libraries that are loaded later than this call have no frames.
    pub(super) fn of(pid: Pid) -> Self {
        let modules = Modules::of(pid);
        Self { unwinder: modules.unwinder(), cache: x86_64::CacheX86_64::new(), modules }
    }

    /// The addresses of a thread's frames, innermost first, and how long the thread was stopped.
    pub(super) fn addresses(&mut self, pid: Pid, thread: u32) -> Option<(Vec<u64>, Duration)> {
        let copied = hold::copy(pid, thread).ok()??;
        Some((unwind(&copied, &self.unwinder, &mut self.cache), copied.held))
    }

    pub(super) fn names(&self, addresses: &[u64]) -> HashMap<u64, StackFrame> {
        self.modules.names(addresses.iter().copied())
    }
}

/// The frames of a thread of an ended process, from its signal handler's note, outermost first.
pub(crate) fn crashed(fault: &FaultReading) -> Vec<CrashFrame> {
    let copied = Copied::of_fault(fault);
    let modules = Modules::of_lines(&String::from_utf8_lossy(&fault.modules));
    let unwinder = modules.unwinder();
    let mut cache = x86_64::CacheX86_64::new();
    let mut addresses = unwind(&copied, &unwinder, &mut cache);
    // A handler that raises the signal again, as faulthandler does, is above the frames that the signal
    // interrupted.
    let mut interrupted = copied;
    for _ in 0..HANDLERS {
        let Some(below) = addresses.last().and_then(|&last| interrupted.below_handler(last)) else { break };
        addresses.extend(unwind(&below, &unwinder, &mut cache));
        interrupted = below;
    }
    addresses.reverse();
    let names = modules.names(addresses.iter().copied());
    let frame = |&address: &u64| {
        let (frame, offset) = (names.get(&address)?.clone(), modules.offset(address)?);
        Some(CrashFrame { frame, address, offset })
    };
    let mut frames: Vec<_> = addresses.iter().filter_map(frame).collect();
    frames.dedup_by(|one, other| one.frame == other.frame && one.frame.function == modules::UNNAMED);
    frames
}

fn unwind(copy: &Copied, unwinder: &modules::Unwinder, cache: &mut x86_64::CacheX86_64) -> Vec<u64> {
    let mut read = |address| copy.word(address).ok_or(());
    let mut frames = unwinder.iter_frames(copy.ip, copy.registers(), cache, &mut read);
    let mut addresses = Vec::new();
    while addresses.len() < RankStacks::FRAMES
        && let Ok(Some(frame)) = frames.next()
    {
        addresses.push(FrameAddress::address_for_lookup(frame));
    }
    addresses
}
