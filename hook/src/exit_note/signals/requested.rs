//! The actions that the program requested. One word per signal keeps the handler and some flags; the kernel
//! keeps the rest of the action, with the hook's handler.

use std::{
    ffi::c_int,
    sync::atomic::{
        AtomicBool, AtomicI32, AtomicU64,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};

use super::FATAL;
use crate::process::mask;

/// Flags whose values the hook changes for the kernel. The program's values are kept in bits that are never
/// set in the address of a handler.
const FLAGS: [(u64, c_int); 4] = [
    (1 << 63, libc::SA_SIGINFO),
    (1 << 62, libc::SA_ONSTACK),
    (ONCE, libc::SA_RESETHAND),
    (RESTORER_BIT, RESTORER),
];
const ONCE: u64 = 1 << 61;
const RESTORER_BIT: u64 = 1 << 60;
const HANDLER: u64 = (1 << 60) - 1;

/// `SA_RESTORER`, which C libraries set if a handler needs it to return.
const RESTORER: c_int = 0x0400_0000;

/// The action that the program requested; zero is the default action without flags.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct RequestedAction(u64);

impl RequestedAction {
    /// `None` for actions that stay with the kernel: to ignore the signal, or to call an invalid address.
    pub(super) fn of(action: &libc::sigaction) -> Option<Self> {
        let handler = action.sa_sigaction as u64;
        if handler & !HANDLER != 0 || action.sa_sigaction == libc::SIG_IGN {
            return None;
        }
        let set = FLAGS.iter().filter(|(_, flag)| action.sa_flags & flag != 0);
        Some(Self(set.fold(handler, |word, (bit, _)| word | bit)))
    }

    /// `SIG_DFL` or a function.
    #[inline]
    pub(super) fn handler(self) -> libc::sighandler_t {
        (self.0 & HANDLER) as libc::sighandler_t
    }

    /// The action as the C library passes it to the kernel.
    pub(super) fn by_libc(self) -> Self {
        Self(self.0 | if cfg!(target_arch = "x86_64") { RESTORER_BIT } else { 0 })
    }

    /// Replaces the hook's handler in the kernel's answer.
    pub(super) fn put_into(self, answer: &mut libc::sigaction) {
        answer.sa_sigaction = self.handler();
        for (bit, flag) in FLAGS {
            answer.sa_flags = (answer.sa_flags & !flag) | if self.0 & bit != 0 { flag } else { 0 };
        }
        if answer.sa_flags & RESTORER == 0 {
            answer.sa_restorer = None;
        }
    }
}

static REQUESTED: [AtomicU64; FATAL.len()] = [const { AtomicU64::new(0) }; FATAL.len()];

pub(super) fn load(place: usize) -> RequestedAction {
    RequestedAction(REQUESTED[place].load(Acquire))
}

pub(super) fn store(place: usize, asked: RequestedAction) {
    REQUESTED[place].store(asked.0, Release);
}

/// Takes the action for an arriving signal. After a one-time handler (`SA_RESETHAND`), the action becomes the
/// default.
#[inline]
pub(super) fn take(place: usize) -> RequestedAction {
    let word = &REQUESTED[place];
    let mut at = word.load(Acquire);
    while at & ONCE != 0 && at & HANDLER != 0 {
        match word.compare_exchange(at, at & !HANDLER, AcqRel, Acquire) {
            Ok(_) => break,
            Err(other) => at = other,
        }
    }
    RequestedAction(at)
}

/// The process whose handlers are in this table.
static OWNER: AtomicI32 = AtomicI32::new(0);
static BUSY: AtomicBool = AtomicBool::new(false);

/// Number of attempts to take the table; they take longer than any use of it. In a child of a bare `clone`,
/// the thread that holds it may not exist.
const PATIENCE: u32 = 1 << 16;

/// Marks the table as belonging to this process.
pub(super) fn own() {
    // SAFETY: getpid has no precondition.
    OWNER.store(unsafe { libc::getpid() }, Relaxed);
    BUSY.store(false, Release);
}

/// Whether the table belongs to this process, and not to a parent whose memory this process shares (`vfork`)
/// or copied.
pub(super) fn is_own() -> bool {
    // SAFETY: getpid has no precondition.
    OWNER.load(Relaxed) == unsafe { libc::getpid() }
}

/// Runs `body` in one thread at a time, with signals blocked, because a handler may come here too.
pub(super) fn exclusively<T>(body: impl FnOnce() -> T) -> T {
    let before = mask::block_all();
    let mut patience = PATIENCE;
    while BUSY.swap(true, Acquire) && patience > 0 {
        patience -= 1;
        std::thread::yield_now();
    }
    let result = body();
    BUSY.store(false, Release);
    mask::set(before);
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(handler: usize, flags: c_int) -> libc::sigaction {
        // SAFETY: all-zero bytes are a sigaction.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        (action.sa_sigaction, action.sa_flags) = (handler, flags);
        action
    }

    #[test]
    fn a_requested_signal_is_answered() {
        for flags in [0, libc::SA_SIGINFO, libc::SA_ONSTACK | RESTORER, libc::SA_RESETHAND | libc::SA_SIGINFO]
        {
            for handler in [libc::SIG_DFL, 0x7fff_1234_5678] {
                let asked = RequestedAction::of(&action(handler, flags | libc::SA_RESTART)).unwrap();
                let mut answer = action(1234, libc::SA_SIGINFO | RESTORER | libc::SA_RESTART);
                asked.put_into(&mut answer);
                assert_eq!(answer.sa_sigaction, handler);
                assert_eq!(answer.sa_flags, flags | libc::SA_RESTART);
            }
        }
    }

    #[test]
    fn an_ignored_signal_or_a_bad_address_is_left_to_the_kernel() {
        assert_eq!(RequestedAction::of(&action(libc::SIG_IGN, 0)), None);
        assert_eq!(RequestedAction::of(&action(libc::SIG_ERR, 0)), None);
    }

    #[test]
    fn a_one_time_handler_is_returned_once() {
        store(0, RequestedAction::of(&action(0x1000, libc::SA_RESETHAND)).unwrap());
        assert_eq!([take(0).handler(), take(0).handler()], [0x1000, libc::SIG_DFL]);
        let mut answer = action(1, 0);
        load(0).put_into(&mut answer);
        assert_eq!((answer.sa_sigaction, answer.sa_flags), (libc::SIG_DFL, libc::SA_RESETHAND));
        store(0, RequestedAction(0));
    }
}
