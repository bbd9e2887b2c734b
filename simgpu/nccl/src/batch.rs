//! One launch on one communicator: a single call, or all calls of a group, which run as one.

use std::ffi::{CStr, c_void};
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use simgpu_engine::clock::Moment;
use simgpu_engine::driver::Driver;
use simgpu_engine::futex;
use simgpu_engine::op::CollectiveCalls;
use simgpu_engine::settings;

use crate::action::{Action, Kind};
use crate::call::Failure;
use crate::communicator::{Communicator, Direction};
use crate::ras;
use crate::rendezvous::PATIENCE;
use crate::slot::{Arrival, Slot, Visit};
use crate::transfers::{Transfer, exchange};

const PURPOSE_SEED: u64 = 0x5eed;

#[derive(Debug)]
pub(crate) struct Batch {
    comm: Arc<Communicator>,
    /// All collectives of the batch as one.
    collective: Option<Together>,
    transfers: Vec<Transfer>,
    /// Bytes written to peers that do not take part.
    put: u64,
    actions: Box<[Action]>,
}

#[derive(Clone, Copy, Debug)]
struct Together {
    purpose: u64,
    cost: u64,
}

/// The batch's places in the order of calls, taken at the launch.
struct Places {
    collective: u64,
    transfers: Vec<u64>,
}

impl Batch {
    /// Puts the actions on the stream.
    pub(crate) fn submit(
        driver: Driver,
        comm: &Arc<Communicator>,
        stream: usize,
        actions: &[Action],
    ) -> Result<(), Failure> {
        let code = if comm.ranks() == 1 {
            let bytes = actions.iter().map(Action::bytes).fold(0, u64::saturating_add);
            // SAFETY: found by `Driver::find`; it takes plain numbers.
            unsafe { (driver.enqueue_copy)(stream, bytes) }
        } else {
            let context = Box::into_raw(Box::new(Self::new(comm, actions))).cast();
            let calls = CollectiveCalls { context, name: name(actions).as_ptr(), launch, resolve, release };
            // SAFETY: found by `Driver::find`; the three calls only share the batch, which is Sync. The
            // caller of `release` owns it from now on.
            unsafe { (driver.enqueue_collective)(stream, calls) }
        };
        if code == 0 { Ok(()) } else { Err(Failure::UnhandledCuda) }
    }

    fn new(comm: &Arc<Communicator>, actions: &[Action]) -> Self {
        let mut collective: Option<Together> = None;
        let (mut transfers, mut put) = (Vec::new(), 0_u64);
        for action in actions {
            match *action {
                Action::Collective { kind, bytes, .. } => {
                    let so_far = collective.unwrap_or(Together { purpose: PURPOSE_SEED, cost: 0 });
                    collective = Some(Together {
                        purpose: action.purpose(so_far.purpose).max(1),
                        cost: so_far.cost + bus_time(kind.bus_bytes(bytes, comm.ranks())),
                    });
                }
                Action::Transfer { direction, bytes, peer } => {
                    let purpose = action.purpose(PURPOSE_SEED).max(1);
                    transfers.push(Transfer { direction, peer, bytes, purpose });
                }
                Action::Put { bytes } => put = put.saturating_add(bytes),
            }
        }
        Self { comm: Arc::clone(comm), collective, transfers, put, actions: actions.into() }
    }

    fn take_places(&self) -> Places {
        Places {
            collective: self.collective.map_or(0, |_| self.comm.next_collective()),
            transfers: self
                .transfers
                .iter()
                .map(|one| self.comm.next_transfer(one.direction, one.peer))
                .collect(),
        }
    }

    /// When all of it ends; `None` if the communicator was aborted first.
    fn run(&self, places: &Places, start: u64) -> Option<u64> {
        let met = match self.collective {
            Some(together) => self.meet(together, places.collective, start)?,
            None => start,
        };
        let exchanged =
            exchange(&self.comm, &self.transfers, &places.transfers, start, self.transfer_cost())?;
        #[allow(clippy::cast_precision_loss, reason = "losing a byte in 2^52 does not matter")]
        let written = start + bus_time(self.put as f64);
        Some(met.max(exchanged).max(written))
    }

    fn meet(&self, together: Together, number: u64, start: u64) -> Option<u64> {
        let (slot, lap) = self.comm.rendezvous.collective(number);
        let Together { purpose, cost } = together;
        let visit = Visit { lap, participants: self.comm.ranks(), purpose, start, cost };
        self.arrive(slot, &visit)?;
        let end = loop {
            let seen = slot.done.load(Ordering::Acquire);
            if let Some(end) = slot.end(&visit) {
                break end;
            }
            self.go_on()?;
            futex::wait(&slot.done, seen, PATIENCE);
        };
        slot.leave(&visit);
        Some(end)
    }

    fn arrive(&self, slot: &Slot, visit: &Visit) -> Option<()> {
        loop {
            let seen = slot.open.load(Ordering::Acquire);
            match slot.arrive(visit) {
                Arrival::Waiting | Arrival::Complete => return Some(()),
                Arrival::NotOpen | Arrival::Mismatch => self.go_on()?,
            }
            futex::wait(&slot.open, seen, PATIENCE);
        }
    }

    fn go_on(&self) -> Option<()> {
        (!self.comm.is_aborted()).then_some(())
    }

    /// The transfers of a batch share the bus, which carries both directions at the same time.
    #[allow(clippy::cast_precision_loss, reason = "losing a byte in 2^52 does not matter")]
    fn transfer_cost(&self) -> u64 {
        let total = |direction| {
            let same_way = self.transfers.iter().filter(|one| one.direction == direction);
            same_way.map(|one| one.bytes).fold(0, u64::saturating_add)
        };
        bus_time(total(Direction::Send).max(total(Direction::Receive)) as f64)
    }
}

/// NCCL's name of the kernel.
fn name(actions: &[Action]) -> &'static CStr {
    match actions {
        [Action::Collective { kind: Kind::AllReduce, .. }] => {
            c"_Z40ncclDevKernel_AllReduce_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"
        }
        [Action::Collective { kind: Kind::AllGather, .. }] => {
            c"_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorageILm4096EE"
        }
        [Action::Collective { kind: Kind::ReduceScatter, .. }] => {
            c"_Z44ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL24ncclDevKernelArgsStorageILm4096EE"
        }
        [Action::Transfer { .. }, ..] => c"_Z22ncclDevKernel_SendRecv24ncclDevKernelArgsStorageILm4096EE",
        _ => c"_Z21ncclDevKernel_Generic24ncclDevKernelArgsStorageILm4096EE",
    }
}

/// How many nanoseconds these bytes take.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates")]
fn bus_time(bytes: f64) -> u64 {
    static GB_S: OnceLock<f64> = OnceLock::new();
    // 1 GB/s is one byte a nanosecond.
    (bytes / GB_S.get_or_init(|| settings::BUS_GB_S.read())).round() as u64
}

unsafe extern "C" fn launch(context: *mut c_void) -> *mut c_void {
    // SAFETY: `context` is the batch of `submit`, which lives until `release`.
    let batch = unsafe { &*context.cast::<Batch>() };
    ras::count(&batch.comm, &batch.actions);
    Box::into_raw(Box::new(batch.take_places())).cast()
}

unsafe extern "C" fn resolve(context: *mut c_void, launched: *mut c_void, start: u64) -> u64 {
    // SAFETY: as in `launch`.
    let batch = unsafe { &*context.cast::<Batch>() };
    // SAFETY: the timeline promises that `launched` came from `launch` and comes here once.
    let places = unsafe { Box::from_raw(launched.cast::<Places>()) };
    batch.run(&places, start).unwrap_or_else(|| Moment::now().ns().max(start))
}

unsafe extern "C" fn release(context: *mut c_void) {
    // SAFETY: the timeline promises that this is the last call with the batch of `submit`.
    drop(unsafe { Box::from_raw(context.cast::<Batch>()) });
}
