//! The hook's environment in the program's process: memory, system calls, the hook's thread, and the switch.

pub(crate) mod brief_lock;
pub(crate) mod clock;
pub(crate) mod mask;
pub(crate) mod memory;
pub(crate) mod peek;
pub(crate) mod single;
pub(crate) mod switch;
pub(crate) mod system;
pub(crate) mod thread;
pub mod thread_sanitizer;
pub(crate) mod thread_words;
pub(crate) mod unwinder;
