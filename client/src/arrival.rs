//! Incoming data, from any source: a live job or a recording.

use tokio::sync::mpsc;
pub use xpu_wire::{endpoint::Endpoint, link::Link};
use xpu_wire::{frame::Frame, id::HostName};

/// Arrivals that may wait for the screen: a source that finds the queue full drops and counts.
pub const QUEUE: usize = 4096;

/// source --Arrival--> watch, status, demo
pub type Arrivals = mpsc::Receiver<Arrival>;

#[derive(Clone, Debug)]
pub enum Arrival {
    Frame(Box<Frame>),
    /// The way to one host changed.
    Link(Endpoint, Link),
    /// The host's name, by its collector.
    Name(Endpoint, HostName),
}
