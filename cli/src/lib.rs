//! The commands of `xpu-top`.

pub mod args;
pub mod command;
mod gpu;
pub mod parts;

#[cfg(not(feature = "parquet"))]
const NO_PARQUET: &str =
    "this program was built by `make demo`, which leaves Parquet out: use the one that `make build` makes";
