//! The stand-in `libnccl.so.2`: NCCL's C interface, with collectives that wait for every rank.
//!
//! Ranks are processes (or threads) of one machine. They join in a file of shared memory, which is unlinked
//! once all have mapped it. Only times are exchanged: the last rank to arrive computes when the collective
//! ends, and wakes the others. No data is moved. As in a real job, the others wait for a rank that never
//! arrives.
//!
//! [`rendezvous`] is the memory that the ranks share, and [`slot`] the protocol in it. [`batch`] is one
//! launch. [`communicator`] and [`group`] are one process's side. The other files are the exported calls.

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
mod pnccl;
mod profiler;
mod ras;
mod rendezvous;
mod signals;
mod slot;
mod transfers;
