//! Connects collector and screen over ZeroMQ: [`socket`] configures the sockets, [`key`] encrypts them,
//! [`connection`] connects to one host, [`subscriptions`] chooses the topics of a viewer, [`messages`] makes
//! requests and takes frames, [`recall`] merges the histories of many hosts. This crate is separate from `xpu-wire`, which the hook links, so that libzmq never enters
//! a training process.

pub mod connection;
pub mod key;
pub mod messages;
pub mod recall;
pub mod socket;
pub mod subscriptions;
