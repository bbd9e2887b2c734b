//! Serves the ranks of one host: takes their summaries, publishes digests, and answers requests.
//!
//! One thread runs the poll loop. Separate processes read stacks. Separate threads serve pages, and receive
//! the data as viewers do. The collector is a process of its own: no viewer can slow a worker down, and a
//! rank's last state stays known after the rank's end.
//!
//! ```text
//! workers ──Hello, Summary, Goodbye──▶ Roster ──Digest, Detail, Event──▶ viewers
//!         ◀────────Command────────────        ◀──Request──  ──Snapshot──▶
//! ```
//!
//! As a [`Relay`] it serves no ranks: it forwards the frames of the collectors behind it, and the requests of
//! viewers.

mod address;
mod captures;
mod cgroup;
mod counting;
mod cpu;
mod device;
mod digest;
mod envelope;
mod environment;
mod exits;
mod follow;
mod functions;
mod hangs;
mod history;
mod http;
mod input_errors;
mod kineto;
mod listen;
mod load;
mod lock;
mod memory;
mod metrics;
mod offline;
mod on_hang;
mod ras;
mod relay;
mod request_time;
mod roster;
mod runs;
mod sampler;
mod serve;
mod stacks;
mod subscription;
mod totals;
mod upstream;
mod what_if;
mod worker;

pub use exits::{read_crash, read_gpu_core};
pub use follow::{Recording, Source};
pub use hangs::{Hangs, HangsConfig};
pub use http::{
    CaptureWay, HttpConfig, HttpError, KeyWay, Push, PushError, Server, Token, TokenError, serve,
};
pub use kineto::KinetoName;
pub use listen::{Config, OpenError, choose_address};
pub use lock::{Lock, LockError};
pub use memory::prepare as prepare_memory;
pub use metrics::Pages;
pub use offline::{Offline, OfflineHistory};
pub use relay::{Relay, RelayConfig};
pub use serve::Collector;
pub use stacks::{read as read_stacks, sample as sample_main_thread, sample_python};
pub use upstream::Upstream;
