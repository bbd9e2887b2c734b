//! How collector and screen reach each other over ZeroMQ: [`socket`] sets the sockets up, [`key`] encrypts
//! them, [`connection`] connects to one host, [`recall`] merges the histories of many. It is separate from
//! `xpu-wire`, which the hook links, so libzmq never enters a training process.

pub mod connection;
pub mod key;
pub mod recall;
pub mod socket;
