//! Traces by PyTorch's own profiler, Kineto: asked for from outside, written by the rank, fetched piece by piece.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::{
    id::{JobName, Pid, Rank, Step},
    ledger::KinetoCount,
    unit::{Moment, Nanoseconds},
};

/// What is wanted of the ranks' Kineto.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KinetoWish {
    /// To know how it stands: a [`KinetoRank`] each.
    Tell,
    /// A trace. The same order again is a question how it stands.
    Trace(KinetoOrder),
    /// This part of the trace that was written for this order. The part before it is needed no more.
    Part { number: u64, part: u32 },
    /// Nothing of this order any more: what was written is removed.
    End { number: u64 },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoOrder {
    /// Chosen by who asks, and in all that is said of it.
    pub number: u64,
    pub window: KinetoWindow,
    /// A rank that has not written its trace after so long is not waited for.
    pub limit: Nanoseconds,
    pub options: KinetoOptions,
}

/// From when to when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KinetoWindow {
    /// From the end of the step before `first`, for so many steps. A rank to which that cannot be said before it has completed step
    /// `latest` is not asked: Kineto would take other steps.
    Steps {
        first: Step,
        steps: u32,
        latest: Step,
        /// What Kineto counts in a step of the program: the calls of its optimizers.
        calls: u32,
    },
    /// From this moment on, by the clock of who asks.
    Time { at: Moment, length: Nanoseconds },
}

/// What a trace holds beside the usual.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoOptions {
    pub record_shapes: bool,
    pub profile_memory: bool,
    pub with_stack: bool,
    pub with_flops: bool,
    pub with_modules: bool,
}

/// How the Kineto of one rank stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoRank {
    /// The order that this is about; 0 for none.
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    pub pid: Pid,
    pub standing: KinetoStanding,
    /// When it last asked for something to do, and how long after the time before.
    pub polled: Option<Moment>,
    pub every: Option<Nanoseconds>,
    pub count: Option<KinetoCount>,
    /// By how much the clock of who asked was behind that of this host, the way of the message included.
    pub clock_offset: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KinetoStanding {
    /// It never asked for something to do.
    Unregistered {
        #[serde(deserialize_with = "crate::text::line")]
        why: String,
    },
    /// It asks for something to do, and traces nothing.
    Idle,
    /// A trace is under way that this order did not ask for.
    Busy,
    /// It is told when it asks the next time.
    Asked,
    /// It was told.
    Told,
    /// It traces, or writes.
    Started,
    /// Its trace is there, with so many bytes.
    Written { bytes: u64 },
    /// There will be none.
    Refused {
        #[serde(deserialize_with = "crate::text::line")]
        why: String,
    },
}

impl KinetoStanding {
    /// Whether there will be no other.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Written { .. } | Self::Refused { .. } | Self::Unregistered { .. })
    }
}

/// A piece of a trace: all of them together are one file, compressed with gzip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoPart {
    pub number: u64,
    pub job: JobName,
    pub rank: Rank,
    /// From 0.
    pub part: u32,
    pub bytes: KinetoBytes,
    /// With the last one.
    pub end: Option<KinetoEnd>,
}

impl KinetoPart {
    /// Bytes of one part, at most.
    pub const BYTES: usize = 1 << 20;
}

/// What was seen of a trace while it was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KinetoEnd {
    /// As it was written, before it was compressed.
    pub bytes: u64,
    /// Calls of an optimizer's `step` that it holds.
    pub optimizer_steps: u32,
    /// When the first and the last of these began, by the clock of the rank's host.
    pub first: Option<Moment>,
    pub last: Option<Moment>,
    /// What was wrong with it, if something was.
    #[serde(deserialize_with = "crate::text::maybe")]
    pub wrong: Option<String>,
}

/// Bytes that are shown as their number.
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
