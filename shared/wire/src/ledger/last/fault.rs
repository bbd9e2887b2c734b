//! A fatal signal: its handler's record, to locate the fault once the process is gone.

use super::{
    super::sync::{Acquire, AtomicU64, Relaxed, Release},
    Bytes,
};
use crate::unit::Moment;

/// Words copied from a stack: 64 KiB.
const STACK: usize = 8192;

/// Words for the lines of `/proc/self/maps` with code of files: a PyTorch process has about 300 of 120 bytes.
const MODULES: usize = 12288;

/// `rip`, `rsp`, `rbp`, `rbx`, `r12` to `r15`.
pub const REGISTERS: usize = 8;

/// Nothing was noted, or the process survived.
const FREE: u64 = 0;
/// A handler is writing.
const WRITING: u64 = 1;
/// The program's own handler runs. It may end the process.
const HANDED: u64 = 2;
/// The process ends.
const FINAL: u64 = 3;

#[repr(C)]
#[derive(Debug)]
pub struct Fault {
    state: AtomicU64,
    /// 0 if unknown.
    at: AtomicU64,
    /// The signal in the low half, `si_code` in the high half.
    signal: AtomicU64,
    /// `si_addr`, or the sender's process id.
    address: AtomicU64,
    thread: AtomicU64,
    name: Bytes<2>,
    registers: [AtomicU64; REGISTERS],
    /// The address of the copied stack.
    stack_from: AtomicU64,
    pub stack: Bytes<STACK>,
    pub modules: Bytes<MODULES>,
}

/// The exclusive right to write one fault.
#[derive(Clone, Copy, Debug)]
pub struct Claimed<'fault>(&'fault Fault);

impl Fault {
    /// Claims the record. `None` if another signal is being noted, or the last one is final. Overwrites a
    /// signal that was handed to the program's own handler.
    #[inline]
    pub fn claim(&self) -> Option<Claimed<'_>> {
        let take = |from| self.state.compare_exchange(from, WRITING, Acquire, Relaxed).is_ok();
        (take(FREE) || take(HANDED)).then_some(Claimed(self))
    }

    /// Claims the record, to complete it, only if its signal was handed to the program's own handler.
    pub fn claim_handed(&self) -> Option<Claimed<'_>> {
        self.state.compare_exchange(HANDED, WRITING, Acquire, Relaxed).ok().map(|_| Claimed(self))
    }

    /// The signal handed to the program's own handler.
    pub fn handed_signal(&self) -> Option<i32> {
        (self.state.load(Acquire) == HANDED).then(|| self.signal.load(Relaxed) as u32 as i32)
    }

    /// The fault's instruction and stack address.
    pub fn place(&self) -> (u64, u64) {
        (self.registers[0].load(Relaxed), self.registers[1].load(Relaxed))
    }

    /// When the signal was handed to the program's own handler. If the handler recorded no time, to be fast,
    /// `now` is recorded.
    pub fn handed(&self, now: Moment) -> Option<Moment> {
        if self.state.load(Acquire) != HANDED {
            return None;
        }
        let noted = self.at.compare_exchange(0, now.0, Relaxed, Relaxed);
        Some(noted.map_or_else(Moment, |_| now))
    }

    /// Notes that the program survived.
    pub fn survived(&self) {
        let _ = self.state.compare_exchange(HANDED, FREE, Release, Relaxed);
    }

    pub(super) fn read(&self) -> Option<FaultReading> {
        let state = self.state.load(Acquire);
        if state != HANDED && state != FINAL {
            return None;
        }
        let signal = self.signal.load(Relaxed);
        Some(FaultReading {
            is_final: state == FINAL,
            at: Moment(self.at.load(Relaxed)),
            number: signal as u32 as i32,
            code: (signal >> 32) as u32 as i32,
            address: self.address.load(Relaxed),
            thread: self.thread.load(Relaxed) as u32,
            name: self.name.text(),
            registers: std::array::from_fn(|index| self.registers[index].load(Relaxed)),
            stack_from: self.stack_from.load(Relaxed),
            stack: self.stack.read(),
            modules: self.modules.read(),
        })
    }
}

impl<'fault> Claimed<'fault> {
    /// Notes the signal, without its time.
    #[inline]
    pub fn signal(self, number: i32, code: i32, address: u64) {
        let Self(fault) = self;
        fault
            .signal
            .store(u64::from(code.cast_unsigned()) << 32 | u64::from(number.cast_unsigned()), Relaxed);
        fault.address.store(address, Relaxed);
        fault.at.store(0, Relaxed);
        fault.thread.store(0, Relaxed);
        fault.name.clear();
        fault.stack.clear();
        fault.modules.clear();
    }

    pub fn at(self, now: Moment) {
        self.0.at.store(now.0, Relaxed);
    }

    pub fn thread(self, number: u32, name: &[u8]) {
        self.0.thread.store(u64::from(number), Relaxed);
        self.0.name.write(name);
    }

    /// Notes the registers, and the address where the stack copy begins. The copy is written next.
    #[inline]
    pub fn registers(self, registers: [u64; REGISTERS], stack_from: u64) {
        for (word, value) in self.0.registers.iter().zip(registers) {
            word.store(value, Relaxed);
        }
        self.0.stack_from.store(stack_from, Relaxed);
    }

    /// The address where the stack copy begins.
    pub fn stack_from(self) -> u64 {
        self.0.stack_from.load(Relaxed)
    }

    pub fn parts(self) -> (&'fault Bytes<STACK>, &'fault Bytes<MODULES>) {
        (&self.0.stack, &self.0.modules)
    }

    /// Notes that the program's own handler runs next.
    #[inline]
    pub fn hand(self) {
        self.0.state.store(HANDED, Release);
    }

    /// Notes that the process ends next.
    pub fn end(self) {
        self.0.state.store(FINAL, Release);
    }
}

/// A fatal signal as noted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultReading {
    /// Whether the signal certainly ends the process; otherwise the program's own handler got the signal.
    pub is_final: bool,
    pub at: Moment,
    pub number: i32,
    pub code: i32,
    pub address: u64,
    pub thread: u32,
    pub name: String,
    pub registers: [u64; REGISTERS],
    pub stack_from: u64,
    pub stack: Vec<u8>,
    /// Lines of `/proc/PID/maps`.
    pub modules: Vec<u8>,
}
