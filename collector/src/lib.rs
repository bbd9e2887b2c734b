//! Serves the ranks of one host: takes their summaries, publishes digests, answers requests.
//!
//! One thread, one poll loop; stacks are read by processes of their own. It is apart from the workers so that nothing a viewer does can slow one down, and apart
//! from the viewer so that what a rank did last is still known when the rank is gone.
//!
//! ```text
//! workers ──Hello, Summary, Goodbye──▶ Roster ──Digest, Detail, Event──▶ viewers
//!         ◀────────Command────────────        ◀──Request──  ──Snapshot──▶
//! ```

mod address;
mod captures;
mod complaint;
mod counting;
mod device;
mod digest;
mod envelope;
mod listen;
mod lock;
mod roster;
mod serve;
mod stacks;
mod subscription;
mod totals;
mod worker;

pub use listen::{Config, OpenError, choose_address};
pub use lock::{Lock, LockError};
pub use serve::Collector;
pub use stacks::read as read_stacks;
