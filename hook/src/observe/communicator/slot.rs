//! The data of one communicator.

use std::{
    ffi::c_int,
    sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use cudarc::runtime::sys::cudaStream_t;
use xpu_wire::{
    collective::PartOfOthers,
    id::CommunicatorId,
    ledger::{CommunicatorLine, Ledger, Writers},
    sampling::Rate,
};

use super::{Name, Origin, name::SharedName, progress::Progress};
use crate::{
    gpu::runtime::DEFAULT_STREAMS,
    interpose::nccl::Identity,
    publish::rate::{self, Class},
};

/// A slot without a line in the ledger.
pub(super) const NO_LINE: u32 = u32::MAX;

/// NCCL did not report the device.
const NO_DEVICE: u32 = u32::MAX;

/// Stands for the handle while a slot is being filled.
pub(super) const BUSY: usize = 1;

#[derive(Debug, Default)]
pub(crate) struct Slot {
    /// The handle; 0 if the slot is free, [`BUSY`] while it is being filled.
    pub(super) handle: AtomicUsize,
    id: AtomicU64,
    magic: AtomicU64,
    parent: AtomicU64,
    name: SharedName,
    pub(super) rank: AtomicU32,
    size: AtomicU32,
    /// [`PartOfOthers`] for its size.
    part_of_others: AtomicU64,
    pub(crate) progress: Progress,
    /// Whether CUDA graphs have operations of this communicator.
    is_in_graphs: AtomicBool,
    /// Number of communicators created from it by a split or by growing, which NCCL counts, and by shrinking,
    /// which NCCL does not count.
    children: AtomicU32,
    shrunk: AtomicU32,
    /// Number of launches of collectives, and of sends or receives, that could have been timed.
    chances: [AtomicU64; 2],
    /// The governor's sampling rate of its collectives.
    pub(crate) rate: AtomicU8,
    pub(super) line: AtomicU32,
    /// Its device plus one; 0 until NCCL was queried, and [`NO_DEVICE`] if NCCL did not answer.
    device: AtomicU32,
}

impl Slot {
    /// Sets the size, and returns the previous one.
    pub(super) fn set_size(&self, size: u32) -> u32 {
        self.part_of_others.store(PartOfOthers::of(size).0, Relaxed);
        self.size.swap(size, Relaxed)
    }

    #[inline]
    pub(crate) fn part_of_others(&self) -> PartOfOthers {
        PartOfOthers(self.part_of_others.load(Relaxed))
    }

    pub(super) fn begin(&self, origin: &Origin) {
        self.id.store(origin.identity.id.0, Relaxed);
        self.magic.store(origin.identity.magic, Relaxed);
        self.parent.store(origin.parent.0, Relaxed);
        self.name.set(&origin.name);
        self.rank.store(origin.rank, Relaxed);
        self.set_size(origin.size);
        self.progress.begin();
        self.is_in_graphs.store(false, Relaxed);
        for count in &self.chances {
            count.store(0, Relaxed);
        }
        for count in [&self.children, &self.shrunk] {
            count.store(0, Relaxed);
        }
        self.rate.store(rate::FIRST.0, Relaxed);
        self.line.store(NO_LINE, Relaxed);
        self.device.store(0, Relaxed);
    }

    pub(crate) fn id(&self) -> CommunicatorId {
        CommunicatorId(self.id.load(Relaxed))
    }

    pub(crate) fn parent(&self) -> Option<CommunicatorId> {
        Some(CommunicatorId(self.parent.load(Relaxed))).filter(|parent| parent.0 != 0)
    }

    pub(crate) fn identity(&self) -> Identity {
        Identity { id: self.id(), magic: self.magic.load(Relaxed) }
    }

    pub(crate) fn name(&self) -> Name {
        self.name.get()
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank.load(Relaxed)
    }

    pub(crate) fn size(&self) -> u32 {
        self.size.load(Relaxed)
    }

    pub(crate) fn line<'a>(&self, ledger: &'a Ledger) -> Option<&'a CommunicatorLine> {
        ledger.communicators.get(self.line.load(Relaxed) as usize)
    }

    /// Notes that an operation is captured into a CUDA graph, which any thread may launch later.
    pub(crate) fn graph_captured(&self) {
        self.is_in_graphs.store(true, Relaxed);
    }

    /// The threads that may change its counts now.
    #[inline]
    pub(crate) fn writers(&self) -> Writers {
        if self.is_in_graphs.load(Relaxed) { Writers::Many } else { Writers::One }
    }

    /// The number that the next collective, or the next send or receive, will have.
    pub(crate) fn next(&self, collective: bool) -> u64 {
        self.progress.next(collective)
    }

    /// Sets its device; `None` if NCCL does not report it.
    pub(crate) fn set_device(&self, device: Option<c_int>) {
        let device = device.and_then(|device| u32::try_from(device).ok());
        self.device.store(device.map_or(NO_DEVICE, |device| device + 1), Relaxed);
    }

    /// The device of a stream that NCCL uses for it; `None` for a default stream, whose handle refers to the
    /// current device.
    pub(crate) fn device_of(&self, stream: cudaStream_t) -> Option<c_int> {
        self.device().filter(|_| stream.addr() > DEFAULT_STREAMS)
    }

    pub(crate) fn device(&self) -> Option<c_int> {
        let device = Some(self.device.load(Relaxed)).filter(|&device| device != NO_DEVICE)?;
        device.checked_sub(1).map(|device| device as c_int)
    }

    /// Whether its size is known, and its device was queried.
    #[inline]
    pub(crate) fn is_settled(&self) -> bool {
        self.size() > 0 && self.device.load(Relaxed) != 0
    }

    /// Decides whether the collective, or send or receive, that is launched now should be timed; returns its
    /// sampling rate if so. Both ends of a message know its number `pair`, so they time the same messages.
    pub(crate) fn choose(&self, collective: bool, pair: Option<u32>) -> Option<Rate> {
        let chances = &self.chances[usize::from(!collective)];
        chances.store(chances.load(Relaxed) + 1, Relaxed);
        let rate =
            if collective { rate::at(Class::Collective, &self.rate) } else { rate::of(Class::PointToPoint) };
        let number = pair.map_or_else(|| self.next(collective), u64::from);
        rate.times(number).then_some(rate)
    }

    /// The number of such decisions so far.
    pub(crate) fn chances(&self, collective: bool) -> u64 {
        self.chances[usize::from(!collective)].load(Relaxed)
    }

    /// The number of the next child, from 1. All ranks make the children in the same order.
    pub(crate) fn next_child(&self, lineage: Lineage) -> u32 {
        self.lineage(lineage).load(Relaxed).wrapping_add(1)
    }

    /// Counts a child that was created, or may have been created.
    pub(crate) fn add_child(&self, lineage: Lineage) {
        self.lineage(lineage).fetch_add(1, Relaxed);
    }

    fn lineage(&self, lineage: Lineage) -> &AtomicU32 {
        match lineage {
            Lineage::Counted => &self.children,
            Lineage::Shrunk => &self.shrunk,
        }
    }
}

/// How a communicator derives from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lineage {
    /// By a split, or by growing: NCCL numbers these.
    Counted,
    /// By shrinking.
    Shrunk,
}
