//! The hook inside a process that is not its own: memory, system calls, its thread, its switch.

pub(crate) mod clock;
pub(crate) mod memory;
pub(crate) mod peek;
pub(crate) mod single;
pub(crate) mod switch;
pub(crate) mod system;
pub(crate) mod thread;
pub mod thread_sanitizer;
pub(crate) mod unwinder;
