//! Send and receive: each pair of ranks matches its calls in their order.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use simgpu_engine::futex;

use crate::action::{Action, bytes};
use crate::call::call;
use crate::communicator::{Communicator, Direction};
use crate::group;
use crate::profiler::{self, Call};
use crate::rendezvous::PATIENCE;
use crate::slot::{Arrival, Slot, Visit};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Transfer {
    pub direction: Direction,
    pub peer: u32,
    pub bytes: u64,
    pub purpose: u64,
}

/// The progress of one transfer of an exchange.
struct Progress<'rendezvous> {
    slot: &'rendezvous Slot,
    visit: Visit,
    peer: u32,
    stage: Stage,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Coming,
    Waiting,
    Done { end: u64 },
}

/// Does all transfers at the same time, as a group requires. Returns when the last ends; `None` if the
/// communicator was aborted first.
pub(crate) fn exchange(
    comm: &Communicator,
    transfers: &[Transfer],
    numbers: &[u64],
    start: u64,
    cost: u64,
) -> Option<u64> {
    let mut open: Vec<_> = transfers
        .iter()
        .zip(numbers)
        .map(|(transfer, number)| {
            let (from, to) = match transfer.direction {
                Direction::Send => (comm.rank, transfer.peer),
                Direction::Receive => (transfer.peer, comm.rank),
            };
            let (slot, lap) = comm.rendezvous.transfer(from, to, *number);
            let visit = Visit { lap, participants: 2, purpose: transfer.purpose, start, cost };
            Progress { slot, visit, peer: transfer.peer, stage: Stage::Coming }
        })
        .collect();
    let doorbell = &comm.rendezvous.rank_slot(comm.rank).doorbell;
    let mut last = start;
    loop {
        let rung = doorbell.load(Ordering::Acquire);
        let moved = open.iter_mut().fold(false, |moved, one| one.step(comm) | moved);
        open.retain(|one| match one.stage {
            Stage::Done { end } => {
                last = last.max(end);
                false
            }
            _ => true,
        });
        if open.is_empty() {
            return Some(last);
        }
        if comm.is_aborted() {
            return None;
        }
        if !moved {
            futex::wait(doorbell, rung, PATIENCE);
        }
    }
}

impl Progress<'_> {
    /// Advances as far as possible without waiting. Returns whether it has advanced.
    fn step(&mut self, comm: &Communicator) -> bool {
        let before = self.stage;
        if self.stage == Stage::Coming {
            match self.slot.arrive(&self.visit) {
                Arrival::NotOpen | Arrival::Mismatch => {}
                Arrival::Waiting => self.stage = Stage::Waiting,
                Arrival::Complete => {
                    self.stage = Stage::Waiting;
                    ring(comm, self.peer);
                }
            }
        }
        if self.stage == Stage::Waiting
            && let Some(end) = self.slot.end(&self.visit)
        {
            self.stage = Stage::Done { end };
            if self.slot.leave(&self.visit) {
                ring(comm, self.peer);
                // Another stream of this rank may wait for the pair's next lap.
                ring(comm, comm.rank);
            }
        }
        self.stage != before
    }
}

fn ring(comm: &Communicator, rank: u32) {
    let doorbell = &comm.rendezvous.rank_slot(rank).doorbell;
    doorbell.fetch_add(1, Ordering::AcqRel);
    futex::wake_all(doorbell);
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclSend(
    _from: *const c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    transfer(Direction::Send, count, data_type, peer, comm, stream)
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn ncclRecv(
    _to: *mut c_void,
    count: usize,
    data_type: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    transfer(Direction::Receive, count, data_type, peer, comm, stream)
}

pub(crate) fn transfer(
    direction: Direction,
    count: usize,
    data_type: c_int,
    peer: c_int,
    comm: usize,
    stream: usize,
) -> c_int {
    call(|driver| {
        let comm = Communicator::of(comm)?;
        let action =
            Action::Transfer { direction, bytes: bytes(count, data_type)?, peer: comm.member(peer)? };
        let func = if direction == Direction::Send { c"Send" } else { c"Recv" };
        let call = Call { func, count, data_type, root: peer, stream, is_collective: false };
        let reported = Arc::clone(&comm);
        profiler::call(&reported, call, group::depth(), || group::submit(driver, comm, stream, action))
    })
}
