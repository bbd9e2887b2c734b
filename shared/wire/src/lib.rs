//! The messages between the parts of xpu-top.
//!
//! ```text
//! hook ──Hello, Summary──▶ collector ──Snapshot, Digest, Detail, Event──▶ xpu-top
//!      ◀────Command──────            ◀────────Request─────────────────
//! ```
//!
//! [`frame`] defines the messages, [`codec`] their bytes; the crate `xpu-net` has the ZeroMQ sockets.
//! [`zmtp`] connects a worker to its collector without libzmq. [`ledger`] is the page of shared memory that
//! can be read when a rank no longer sends.
//!
//! The hook depends on this crate alone, so nothing here links a C library or contains findings.

pub mod codec;
pub mod collective;
pub mod datatype;
pub mod endpoint;
pub mod error_name;
pub mod frame;
pub mod functions;
pub mod gemm;
pub mod gpu_cores;
pub mod histogram;
pub mod id;
pub mod ledger;
pub mod link;
pub mod plan;
pub mod process;
pub mod sampling;
pub mod text;
pub mod unit;
pub mod zmtp;

/// The version every part reports; all crates of the workspace share it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The output of `--version`: the version, and for packages their source, build time and C library.
pub fn build() -> &'static str {
    static BUILD: std::sync::LazyLock<String> =
        std::sync::LazyLock::new(|| match option_env!("XPU_TOP_BUILD") {
            Some(from) => format!("{VERSION} ({from})"),
            None => VERSION.to_owned(),
        });
    &BUILD
}
