//! The commands of `xpu-top`, one file each.

pub mod capture;
pub mod collectives;
pub mod config;
pub mod ctl;
pub mod demo;
pub mod diff;
pub mod doctor;
pub mod export;
pub mod findings;
pub mod gemm_replay;
mod hang_up;
pub mod keygen;
pub mod kineto;
mod living;
mod output;
pub mod past;
pub mod qualify;
mod query;
pub mod ras;
pub mod record;
pub mod report;
pub mod run;
pub mod serve;
pub mod stacks;
pub mod status;
pub mod what_if;
