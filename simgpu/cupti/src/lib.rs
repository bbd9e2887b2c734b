//! The stand-in `libcupti.so.13`: activity records of the work that the simulated GPU ran.
//!
//! Only the callbacks registered last are used. They run on the library's own thread, and on threads that
//! flush. A record is complete once the clock has reached the end of its work.

#![allow(non_snake_case, reason = "the names are CUPTI's")]

mod activity;
mod buffer;
mod call;
mod record;
mod subscriber;
