//! What the parts of xpu-top say to each other.
//!
//! ```text
//! hook ──Hello, Summary──▶ collector ──Snapshot, Digest, Detail, Event──▶ xpu-top
//!      ◀────Command──────            ◀────────Request─────────────────
//! ```
//!
//! [`frame`] says what is sent, [`codec`] how it becomes bytes; over which ZeroMQ sockets, the crate `xpu-net`. [`zmtp`] is how a
//! worker speaks to its collector without libzmq. [`ledger`] is the page of shared memory that a rank can be read from when it can no
//! longer speak. [`simulation`] is a job that does not exist, for the demo and for tests.
//!
//! This is all that the hook needs, so nothing here links a C library or knows what a finding is.

pub mod codec;
pub mod collective;
pub mod datatype;
pub mod endpoint;
pub mod error_name;
pub mod frame;
pub mod functions;
pub mod gemm;
pub mod histogram;
pub mod id;
pub mod ledger;
pub mod link;
pub mod process;
pub mod sampling;
pub mod simulation;
pub mod text;
pub mod unit;
pub mod zmtp;

/// The version every part reports; all crates of the workspace share it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// What `--version` says: the version, and of packages what they were built from, when, and against which C library.
pub fn build() -> &'static str {
    static BUILD: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| match option_env!("XPU_TOP_BUILD") {
            Some(from) => format!("{VERSION} ({from})"),
            None => VERSION.to_owned(),
        });
    &BUILD
}
