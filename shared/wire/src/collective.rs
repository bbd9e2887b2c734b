//! NCCL operations and their bus bandwidth as nccl-tests defines it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An operation that a rank requested from NCCL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Operation {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    Send,
    Recv,
    /// Several collectives of one communicator in one group: they launch, and are timed, as one.
    Fused,
    AlltoAll,
    Gather,
    Scatter,
    PutSignal,
    Signal,
    WaitSignal,
    /// Sends and receives of one communicator in one group, which launch as one. A group with one of each per
    /// rank is an [`Self::AlltoAll`].
    SendRecv,
}

impl Operation {
    pub const ALL: [Self; 15] = [
        Self::AllReduce,
        Self::AllGather,
        Self::ReduceScatter,
        Self::Broadcast,
        Self::Reduce,
        Self::Send,
        Self::Recv,
        Self::Fused,
        Self::AlltoAll,
        Self::Gather,
        Self::Scatter,
        Self::PutSignal,
        Self::Signal,
        Self::WaitSignal,
        Self::SendRecv,
    ];

    /// Whether every rank of the communicator takes part. Only these operations carry a sequence number.
    pub fn is_collective(self) -> bool {
        !matches!(
            self,
            Self::Send | Self::Recv | Self::SendRecv | Self::PutSignal | Self::Signal | Self::WaitSignal
        )
    }

    /// Message size of the operation as nccl-tests defines it (S), from the count given to the call.
    ///
    /// The count of some operations is that of one rank's part; S is then the sum over all ranks.
    #[inline]
    pub fn message_bytes(self, count: u64, element_bytes: u64, ranks: u32) -> u64 {
        let one = count.saturating_mul(element_bytes);
        match self {
            Self::AllGather | Self::ReduceScatter | Self::AlltoAll | Self::Gather | Self::Scatter => {
                one.saturating_mul(u64::from(ranks))
            }
            _ => one,
        }
    }

    /// Bus bandwidth divided by algorithm bandwidth. Bus bandwidth can be compared with the hardware's rate
    /// for any number of ranks (nccl-tests, doc/PERFORMANCE.md).
    pub fn bus_factor(self, ranks: u32) -> f64 {
        let n = f64::from(ranks.max(1));
        let part_of_others = (n - 1.0) / n;
        match self {
            Self::AllReduce => 2.0 * part_of_others,
            Self::AllGather | Self::ReduceScatter | Self::AlltoAll | Self::Gather | Self::Scatter => {
                part_of_others
            }
            Self::Broadcast
            | Self::Reduce
            | Self::Send
            | Self::Recv
            | Self::SendRecv
            | Self::Fused
            | Self::PutSignal
            | Self::Signal
            | Self::WaitSignal => 1.0,
        }
    }

    /// Bytes over the bus of one operation: [`Self::message_bytes`] times [`Self::bus_factor`].
    /// Zero for a communicator of one, which moves nothing.
    pub fn bus_bytes(self, count: u64, element_bytes: u64, ranks: u32) -> u64 {
        self.bus_bytes_of(self.message_bytes(count, element_bytes, ranks), PartOfOthers::of(ranks))
    }

    /// [`Self::bus_bytes`], computed from [`Self::message_bytes`] and a stored [`PartOfOthers`]: a launch then
    /// needs neither division nor floating point.
    #[inline]
    pub fn bus_bytes_of(self, message_bytes: u64, PartOfOthers(part): PartOfOthers) -> u64 {
        let factor = match self {
            Self::AllReduce => 2 * part,
            Self::AllGather | Self::ReduceScatter | Self::AlltoAll | Self::Gather | Self::Scatter => part,
            _ if part == 0 => 0,
            _ => return message_bytes,
        };
        let bytes = (u128::from(message_bytes) * u128::from(factor)) >> PartOfOthers::BITS;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

/// The share of a message that goes to other ranks, from which all factors are computed, in units of 2^-63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartOfOthers(pub u64);

impl PartOfOthers {
    const BITS: u32 = 63;

    /// Rounded up, so that whole numbers of bytes stay whole.
    pub fn of(ranks: u32) -> Self {
        let ranks = u128::from(ranks.max(1));
        Self(((ranks - 1) << Self::BITS).div_ceil(ranks) as u64)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AllReduce => "AllReduce",
            Self::AllGather => "AllGather",
            Self::ReduceScatter => "ReduceScatter",
            Self::Broadcast => "Broadcast",
            Self::Reduce => "Reduce",
            Self::Send => "Send",
            Self::Recv => "Recv",
            Self::Fused => "Fused",
            Self::AlltoAll => "AlltoAll",
            Self::Gather => "Gather",
            Self::Scatter => "Scatter",
            Self::PutSignal => "PutSignal",
            Self::Signal => "Signal",
            Self::WaitSignal => "WaitSignal",
            Self::SendRecv => "SendRecv",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (operation, factor of S at 8 ranks, S in units of the API's count), after nccl-tests src/*.cu getBw.
    const NCCL_TESTS: [(Operation, f64, u64); 11] = [
        (Operation::AllReduce, 1.75, 1),
        (Operation::AllGather, 0.875, 8),
        (Operation::ReduceScatter, 0.875, 8),
        (Operation::Broadcast, 1.0, 1),
        (Operation::Reduce, 1.0, 1),
        (Operation::Send, 1.0, 1),
        (Operation::Recv, 1.0, 1),
        (Operation::AlltoAll, 0.875, 8),
        (Operation::Gather, 0.875, 8),
        (Operation::Scatter, 0.875, 8),
        (Operation::SendRecv, 1.0, 1),
    ];

    #[test]
    fn factors_and_sizes_are_those_of_nccl_tests() {
        for (operation, factor, whole) in NCCL_TESTS {
            assert!((operation.bus_factor(8) - factor).abs() < 1e-12, "{operation}");
            assert_eq!(operation.message_bytes(1000, 2, 8), 2000 * whole, "{operation}");
            assert_eq!(
                operation.bus_bytes(1000, 2, 8),
                (2000.0 * whole as f64 * factor) as u64,
                "{operation}"
            );
        }
        assert_eq!(Operation::AllReduce.bus_factor(2), 1.0);
    }

    #[test]
    fn whole_parts_stay_whole() {
        for ranks in 1..=1200 {
            for each in [1, 999, 1 << 30] {
                let bytes = u64::from(ranks) * each;
                let (part, to_others) = (PartOfOthers::of(ranks), each * u64::from(ranks - 1));
                assert_eq!(Operation::AlltoAll.bus_bytes_of(bytes, part), to_others, "{bytes} of {ranks}");
                assert_eq!(
                    Operation::AllReduce.bus_bytes_of(bytes, part),
                    2 * to_others,
                    "{bytes} of {ranks}"
                );
            }
        }
    }

    #[test]
    fn one_rank_alone_moves_nothing() {
        assert_eq!(Operation::AllReduce.bus_bytes(1 << 20, 4, 1), 0);
    }

    #[test]
    fn a_hostile_count_does_not_overflow() {
        assert!(Operation::AllGather.message_bytes(u64::MAX, 8, 1024) > 0);
    }
}
