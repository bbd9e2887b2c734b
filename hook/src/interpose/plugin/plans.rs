//! How NCCL executes collectives: the latest plan of each kind of collective.

use std::{
    ffi::c_int,
    sync::atomic::{
        AtomicU32, AtomicU64,
        Ordering::{AcqRel, Relaxed},
    },
};

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    id::CommunicatorId,
    plan::{Algorithm, Plan, Protocol},
    sampling,
};

/// Maximum number of kinds of collectives with a known plan. Further ones replace earlier ones.
const KINDS: usize = 1024;
/// Possible places of a kind.
const PLACES: usize = 8;

static PLANS: [Entry; KINDS] =
    [const { Entry { key: AtomicU64::new(0), plan: AtomicU32::new(NONE) } }; KINDS];

const NONE: u32 = 0;
/// Collectives of this kind had several plans, so the plan of any one of them is unknown.
const SEVERAL: u32 = u32::MAX;

struct Entry {
    /// 0 while it is free.
    key: AtomicU64,
    plan: AtomicU32,
}

/// The properties that determine a collective's plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) communicator: CommunicatorId,
    pub(crate) operation: Operation,
    pub(crate) datatype: DataType,
    pub(crate) bytes: u64,
}

impl Kind {
    fn key(self) -> u64 {
        // NCCL treats these as bytes.
        let datatype = match self.operation {
            Operation::AllGather | Operation::Broadcast => DataType::Int8,
            _ => self.datatype,
        };
        let datatype = match datatype {
            DataType::Other(number) => 256 + u64::from(number),
            known => number(known),
        };
        let words = [self.communicator.0, self.operation as u64, datatype, self.bytes];
        words.into_iter().fold(0, |mixed, word| sampling::priority(mixed ^ word)).max(1)
    }
}

fn number(datatype: DataType) -> u64 {
    let is = |nccl: &c_int| DataType::from_nccl(*nccl) == datatype;
    (0..16).find(is).map_or(u64::MAX, |nccl| nccl as u64)
}

fn places(key: u64) -> impl Iterator<Item = &'static Entry> {
    (0..PLACES).map(move |distance| &PLANS[(key as usize + distance) % KINDS])
}

/// Keeps the plan with which NCCL launched a collective.
pub(super) fn learn(kind: Kind, plan: Plan) {
    let (key, packed) = (kind.key(), packed(plan));
    let entry = places(key).find(|entry| {
        entry.key.load(Relaxed) == key || entry.key.compare_exchange(0, key, AcqRel, Relaxed).is_ok()
    });
    if let Some(entry) = entry {
        let _ = entry.plan.compare_exchange(NONE, packed, Relaxed, Relaxed);
        if entry.plan.load(Relaxed) != packed {
            entry.plan.store(SEVERAL, Relaxed);
        }
    } else if let Some(entry) = places(key).next() {
        entry.plan.store(NONE, Relaxed);
        entry.key.store(key, Relaxed);
        entry.plan.store(packed, Relaxed);
    }
}

/// The plan that all collectives of this kind have had; `None` if it is unknown.
pub(crate) fn of(kind: Kind) -> Option<Plan> {
    let key = kind.key();
    let entry = places(key).find(|entry| entry.key.load(Relaxed) == key)?;
    unpacked(entry.plan.load(Relaxed))
}

fn packed(plan: Plan) -> u32 {
    1 | (plan.algorithm as u32) << 1 | (plan.protocol as u32) << 5 | u32::from(plan.channels) << 8
}

fn unpacked(packed: u32) -> Option<Plan> {
    if packed == NONE || packed == SEVERAL {
        return None;
    }
    Some(Plan {
        algorithm: Algorithm::from_nccl((packed >> 1 & 15) as u8),
        protocol: Protocol::from_nccl((packed >> 5 & 7) as u8),
        channels: (packed >> 8) as u8,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(communicator: u64, bytes: u64) -> Kind {
        let communicator = CommunicatorId(communicator);
        Kind { communicator, operation: Operation::AllReduce, datatype: DataType::Bfloat16, bytes }
    }

    fn plan(channels: u8) -> Plan {
        Plan { algorithm: Algorithm::NvlsTree, protocol: Protocol::Simple, channels }
    }

    #[test]
    fn a_kind_with_several_plans_has_none() {
        let of_byte = Plan { algorithm: Algorithm::Other, protocol: Protocol::Other, channels: 255 };
        for (bytes, plan) in [(64, plan(24)), (128, of_byte)] {
            assert_eq!(of(kind(7, bytes)), None);
            learn(kind(7, bytes), plan);
            learn(kind(7, bytes), plan);
            assert_eq!(of(kind(7, bytes)), Some(plan));
        }
        learn(kind(7, 64), plan(23));
        learn(kind(7, 64), plan(24));
        assert_eq!((of(kind(7, 64)), of(kind(7, 128))), (None, Some(of_byte)));
        let gathered = |datatype| Kind { operation: Operation::AllGather, datatype, ..kind(7, 64) };
        learn(gathered(DataType::Int8), plan(2));
        assert_eq!(of(gathered(DataType::Float32)), Some(plan(2)));
    }

    #[test]
    fn kinds_beyond_the_limit_replace_earlier_ones() {
        for communicator in 1..5000 {
            learn(kind(1000 + communicator, 1), plan(1));
            assert_eq!(of(kind(1000 + communicator, 1)), Some(plan(1)));
        }
    }
}
