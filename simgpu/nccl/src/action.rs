//! The operations that a program requests of a communicator: collectives, with the bytes that each moves over
//! the bus, and transfers.

use std::ffi::{CStr, c_int};

use crate::call::Failure;
use crate::communicator::Direction;
use crate::key::fold;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    AllGather,
    ReduceScatter,
    Broadcast,
    Reduce,
    AlltoAll,
    Gather,
    Scatter,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Action {
    /// `bytes` is the count times the element size. `root` is 0 for operations without one.
    Collective {
        kind: Kind,
        bytes: u64,
        root: u32,
    },
    Transfer {
        direction: Direction,
        bytes: u64,
        peer: u32,
    },
    /// A one-sided write or signal, with its bytes over the bus. No other rank waits for it.
    Put {
        bytes: u64,
    },
}

impl Kind {
    pub(crate) fn name(self) -> &'static CStr {
        match self {
            Self::AllReduce => c"AllReduce",
            Self::AllGather => c"AllGather",
            Self::ReduceScatter => c"ReduceScatter",
            Self::Broadcast => c"Broadcast",
            Self::Reduce => c"Reduce",
            Self::AlltoAll => c"AlltoAll",
            Self::Gather => c"Gather",
            Self::Scatter => c"Scatter",
        }
    }

    /// The bytes over the bus, by the formulas of nccl-tests, so that the simulated bandwidth is exact.
    #[allow(clippy::cast_precision_loss, reason = "losing a byte in 2^52 does not matter")]
    pub(crate) fn bus_bytes(self, bytes: u64, ranks: u32) -> f64 {
        let (bytes, others) = (bytes as f64, f64::from(ranks - 1));
        match self {
            Self::AllReduce => 2.0 * others / f64::from(ranks) * bytes,
            // The total is `bytes * ranks`, and each rank already has its own part.
            Self::AllGather | Self::ReduceScatter | Self::AlltoAll | Self::Gather | Self::Scatter => {
                others * bytes
            }
            Self::Broadcast | Self::Reduce => bytes,
        }
    }
}

impl Action {
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Collective { bytes, .. } | Self::Transfer { bytes, .. } | Self::Put { bytes } => *bytes,
        }
    }

    /// Equal for two ranks that request the same operation.
    pub(crate) fn purpose(&self, seed: u64) -> u64 {
        match self {
            Self::Collective { kind, bytes, root } => {
                fold(seed, &[&[*kind as u8], &bytes.to_ne_bytes(), &root.to_ne_bytes()])
            }
            Self::Transfer { bytes, .. } | Self::Put { bytes } => fold(seed, &[&bytes.to_ne_bytes()]),
        }
    }
}

/// The bytes of `count` elements of an `ncclDataType_t`.
pub(crate) fn bytes(count: usize, data_type: c_int) -> Result<u64, Failure> {
    const SIZES: [u64; 12] = [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1];
    let size = usize::try_from(data_type).ok().and_then(|index| SIZES.get(index));
    let size = size.ok_or(Failure::InvalidArgument)?;
    (count as u64).checked_mul(*size).ok_or(Failure::InvalidArgument)
}
