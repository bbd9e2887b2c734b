//! Traces by PyTorch's profiler, Kineto: requested from outside, written by the rank, fetched part by part.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    id::{JobName, Pid, Rank, Step},
    ledger::KinetoCount,
    unit::{Moment, Nanoseconds},
};

/// A request to the ranks' Kineto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KinetoWish {
    /// Report its state: one [`KinetoRank`] each.
    Tell,
    /// A trace. Repeating the order returns its state.
    Trace(KinetoOrder),
    /// This part of the trace that was written for this order. The part before it can be dropped.
    Part { number: u64, part: u32 },
    /// End this order: the written trace is removed.
    End { number: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoOrder {
    /// Chosen by the requester, and repeated in every message about the trace.
    pub number: u64,
    pub window: KinetoWindow,
    /// After this time, a rank that has not written its trace is no longer awaited.
    pub limit: Nanoseconds,
    pub options: KinetoOptions,
}

/// When the trace begins and ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KinetoWindow {
    /// From the end of the step before `first`, for this number of steps. A rank that would receive the order
    /// only after step `latest` gets none: its Kineto would record other steps.
    Steps {
        first: Step,
        steps: u32,
        latest: Step,
        /// Kineto's count within one step of the program: calls of its optimizers.
        calls: u32,
    },
    /// From this moment on, by the requester's clock.
    Time { at: Moment, length: Nanoseconds },
}

/// Optional contents of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoOptions {
    pub record_shapes: bool,
    pub profile_memory: bool,
    pub with_stack: bool,
    pub with_flops: bool,
    pub with_modules: bool,
}

impl KinetoWindow {
    /// Steps that a trace of steps holds after the requested ones. Kineto ends a trace at an optimizer call, and
    /// does not wait for the GPU: kernels that were launched just before are missing.
    pub const BEYOND: u32 = 1;
}

/// The state of one rank's Kineto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoRank {
    /// The order to which this state refers; 0 for none.
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    pub standing: KinetoStanding,
    /// When the rank last polled for an order, and the time since its previous poll.
    pub polled: Option<Moment>,
    pub every: Option<Nanoseconds>,
    pub count: Option<KinetoCount>,
    /// Time by which the requester's clock was behind this host's, including the message's travel time.
    pub clock_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KinetoStanding {
    /// It never polled for an order.
    Unregistered {
        #[serde(deserialize_with = "crate::text::line")]
        why: String,
    },
    /// It polls, and traces nothing.
    Idle,
    /// A trace is in progress that this order did not start.
    Busy,
    /// It gets the order at its next poll.
    Asked,
    /// It got the order.
    Instructed,
    /// It traces, or writes the trace.
    Started,
    /// Its trace of this size is ready.
    Written { bytes: u64 },
    /// There will be no trace.
    Refused {
        #[serde(deserialize_with = "crate::text::line")]
        why: String,
    },
}

impl KinetoStanding {
    /// Whether this state is final.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Written { .. } | Self::Refused { .. } | Self::Unregistered { .. })
    }
}

/// A part of a trace: all of them together are one file, compressed with gzip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoPart {
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    /// The number of the part, from 0 on.
    pub part: u32,
    pub bytes: KinetoBytes,
    /// Present only in the last part.
    pub end: Option<KinetoEnd>,
}

impl KinetoPart {
    /// Bytes of one part, at most.
    pub const BYTES: usize = 1 << 20;
}

/// What was noticed while the trace was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoEnd {
    /// Size of the trace before compression.
    pub bytes: u64,
    /// Calls of an optimizer's `step` in it.
    pub optimizer_steps: u32,
    /// When the first and the last of these began, by the clock of the rank's host.
    pub first: Option<Moment>,
    pub last: Option<Moment>,
    /// What was wrong with it, if anything.
    #[serde(deserialize_with = "crate::text::maybe")]
    pub wrong: Option<String>,
}

/// Bytes whose Debug form is their number.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct KinetoBytes(pub Vec<u8>);

impl fmt::Debug for KinetoBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.0.len())
    }
}

impl Serialize for KinetoBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for KinetoBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl de::Visitor<'_> for Bytes {
            type Value = KinetoBytes;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<KinetoBytes, E> {
                Ok(KinetoBytes(bytes.to_vec()))
            }

            fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<KinetoBytes, E> {
                Ok(KinetoBytes(bytes))
            }
        }

        deserializer.deserialize_byte_buf(Bytes)
    }
}
