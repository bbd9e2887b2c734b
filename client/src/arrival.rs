//! Incoming data, from any source: a live job or a recording.

use tokio::sync::mpsc;
pub use xpu_wire::{endpoint::Endpoint, link::Link};
use xpu_wire::{frame::Frame, id::HostName};

/// Largest number of arrivals queued for the screen. If the queue is full, the source drops further arrivals
/// and counts them.
pub const QUEUE: usize = 4096;

/// source --Arrival--> watch, status, demo
pub type Arrivals = mpsc::Receiver<Arrival>;

#[derive(Clone, Debug)]
pub enum Arrival {
    Frame(Box<Frame>),
    /// The state of the connection to one host changed.
    Link(Endpoint, Link),
    /// The host's name, as its collector reports it.
    Name(Endpoint, HostName),
}
