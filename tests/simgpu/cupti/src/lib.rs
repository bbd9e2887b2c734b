//! The stand-in `libcupti.so.13`: activity records of what the pretended GPU really ran.
//!
//! One client's callbacks are registered at a time, the latest; buffers are asked for and given back on a thread of its own, and on those
//! that flush. A record is complete once the clock has come to its end.

#![allow(non_snake_case, reason = "the names are CUPTI's")]

mod activity;
mod buffer;
mod call;
mod record;
mod subscriber;
