//! What every part of xpu-top speaks: ids, units, formulas, wire frames, and the job they add up to.
//!
//! ```text
//! hook ──Hello, Summary──▶ collector ──Snapshot, Digest, Detail, Event──▶ xpu-top
//!      ◀────Command──────            ◀────────Request─────────────────
//! ```
//!
//! [`frame`] says what is sent, [`codec`] how it becomes bytes; over which ZeroMQ sockets, the crate `xpu-net`.
//! [`ledger`] is the page of shared memory a rank can be read from when it can no longer speak.
//! [`job`] folds frames into what is known now, [`status`] is that as a document, [`finding`] what is wrong with it.
//! [`recording`] is a file of frames, [`capture`] what such a file holds of a few steps recorded whole.
//! [`stack`] merges the stacks of many ranks into one tree.
//! [`zmtp`] is how a worker speaks to its collector, without libzmq.
//! [`hosts`] reads which hosts there are. Nothing here reads a clock or the network by itself; time comes in as an argument.

pub mod baseline;
pub mod capture;
pub mod change_point;
pub mod codec;
pub mod collective;
pub mod datatype;
pub mod divergence;
pub mod endpoint;
pub mod error_name;
pub mod expected;
pub mod finding;
pub mod frame;
pub mod functions;
pub mod gemm;
pub mod hangs;
pub mod histogram;
pub mod hosts;
pub mod id;
pub mod job;
pub mod ledger;
pub mod link;
pub mod peak;
pub mod process;
pub mod recording;
pub mod sampling;
pub mod simulation;
pub mod stack;
pub mod status;
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
