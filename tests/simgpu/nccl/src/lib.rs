//! The stand-in `libnccl.so.2`: NCCL's C interface with collectives that really wait for every rank.
//!
//! Ranks are processes (or threads) of one machine. They meet in a file of shared memory that is unlinked as
//! soon as all have it mapped. Only times are exchanged: the last rank to arrive works out when the collective
//! ends and wakes the others. No byte is moved, and a rank that never comes is waited for, as in a real job.
//!
//! [`rendezvous`] is what the ranks share and [`slot`] the protocol in it; [`batch`] is what one launch does;
//! [`communicator`] and [`group`] are one process's side; the rest are the exported calls.

#![allow(non_snake_case, reason = "the names are NCCL's")]

mod about;
mod action;
mod batch;
mod call;
mod children;
mod collectives;
mod communicator;
mod config;
mod configured;
mod file;
mod greeting;
mod group;
mod job;
mod key;
mod lifetime;
mod profiler;
mod ras;
mod rendezvous;
mod signals;
mod slot;
mod transfers;
mod twins;
