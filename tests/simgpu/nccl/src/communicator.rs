//! One process's side of a communicator.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use simgpu_engine::handles::Handles;

use crate::call::Failure;
use crate::key::Key;
use crate::room::Room;

#[derive(Debug)]
pub(crate) struct Communicator {
    pub key: Key,
    pub rank: u32,
    pub device: c_int,
    pub room: Room,
    pub aborted: AtomicBool,
    collectives: AtomicU64,
    splits: AtomicU32,
    /// Transfers so far, by peer.
    sent: Box<[AtomicU64]>,
    received: Box<[AtomicU64]>,
}

/// Which way a transfer goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Send,
    Receive,
}

pub(crate) static COMMUNICATORS: Handles<Communicator> = Handles::new(0xcc10_0000);

impl Communicator {
    pub(crate) fn new(key: Key, rank: u32, device: c_int, room: Room) -> Self {
        let counters = || (0..room.ranks).map(|_| AtomicU64::new(0)).collect();
        Self {
            key,
            rank,
            device,
            aborted: AtomicBool::new(false),
            collectives: AtomicU64::new(0),
            splits: AtomicU32::new(0),
            sent: counters(),
            received: counters(),
            room,
        }
    }

    pub(crate) fn of(handle: usize) -> Result<Arc<Self>, Failure> {
        COMMUNICATORS.get(handle).ok_or(Failure::InvalidArgument)
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.room.ranks
    }

    /// A rank of this communicator.
    pub(crate) fn member(&self, rank: c_int) -> Result<u32, Failure> {
        u32::try_from(rank).ok().filter(|rank| *rank < self.ranks()).ok_or(Failure::InvalidArgument)
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::Relaxed)
    }

    pub(crate) fn next_collective(&self) -> u64 {
        self.collectives.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_split(&self) -> u32 {
        self.splits.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn next_transfer(&self, direction: Direction, peer: u32) -> u64 {
        let counters = match direction {
            Direction::Send => &self.sent,
            Direction::Receive => &self.received,
        };
        counters[peer as usize].fetch_add(1, Ordering::Relaxed)
    }
}
