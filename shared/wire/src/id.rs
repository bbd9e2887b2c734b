//! Identifiers as newtypes, so that a rank is never mistaken for a process id.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(#[serde(deserialize_with = "crate::text::line")] pub String);

        impl $name {
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.to_owned())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }
    };
}

/// Position of a process in its job, 0 to world size - 1, the same on every host. In a process that uses
/// several GPUs each GPU is a rank of its own: `0.1` is device 1 of process 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Rank(pub u32);

impl Rank {
    /// Largest number of ranks of a job. Ranks not yet seen take memory too, so a claimed world of billions
    /// is rejected.
    pub const WORLD: u32 = 1 << 20;
    /// GPUs of one process that can be ranks: their numbers are below this.
    pub const GPUS: u32 = 64;

    /// One GPU of this process. A device beyond [`Self::GPUS`] has no rank of its own.
    pub fn of_gpu(self, device: DeviceIndex) -> Self {
        if device.0 < Self::GPUS { Self(self.0 % Self::WORLD + (device.0 + 1) * Self::WORLD) } else { self }
    }

    /// The GPU, if its process uses several.
    pub fn gpu(self) -> Option<DeviceIndex> {
        (self.0 / Self::WORLD).checked_sub(1).map(DeviceIndex)
    }

    /// The rank of its process.
    pub fn process(self) -> Self {
        Self(self.0 % Self::WORLD)
    }

    /// Whether this is the next number after `other`; never for ranks of single GPUs.
    pub fn follows(self, other: Self) -> bool {
        self.gpu().is_none() && other.gpu().is_none() && other.0.checked_add(1) == Some(self.0)
    }

    /// The sort key: by process, then by GPU.
    fn order(self) -> (u32, u32) {
        (self.0 % Self::WORLD, self.0 / Self::WORLD)
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.gpu() {
            // The parts become one text, because it may be padded.
            Some(gpu) => f.pad(&format!("{}.{gpu}", self.process().0)),
            None => self.0.fmt(f),
        }
    }
}

impl std::str::FromStr for Rank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong =
            || format!("'{text}' is no rank: write a number, or 0.1 for a GPU of a process with several");
        let number = |text: &str, most| text.parse().ok().filter(|&number| number < most).ok_or_else(wrong);
        let (process, gpu) = text.split_once('.').map_or((text, None), |(process, gpu)| (process, Some(gpu)));
        let process = Self(number(process, Self::WORLD)?);
        gpu.map_or(Ok(process), |gpu| Ok(process.of_gpu(DeviceIndex(number(gpu, Self::GPUS)?))))
    }
}

/// In JSON a number, or a text such as `"0.1"` for one GPU of a process with several.
impl Serialize for Rank {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.gpu() {
            Some(_) if to.is_human_readable() => to.collect_str(self),
            _ => to.serialize_u32(self.0),
        }
    }
}

impl<'de> Deserialize<'de> for Rank {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            return from.deserialize_any(ReadableRank);
        }
        let rank = u32::deserialize(from)?;
        if rank / Self::WORLD <= Self::GPUS {
            Ok(Self(rank))
        } else {
            Err(D::Error::custom("no job has that many ranks"))
        }
    }
}

struct ReadableRank;

impl serde::de::Visitor<'_> for ReadableRank {
    type Value = Rank;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a rank, as 3 or \"0.1\"")
    }

    fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Rank, E> {
        let known = u32::try_from(number).ok().filter(|&rank| rank < Rank::WORLD);
        known.map(Rank).ok_or_else(|| E::custom("no job has that many ranks"))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Rank, E> {
        text.parse().map_err(E::custom)
    }
}

/// For fields of frames: a job's number of ranks.
pub(crate) fn world_size<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let ranks = u32::deserialize(from)?;
    if ranks <= Rank::WORLD { Ok(ranks) } else { Err(D::Error::custom("no job has that many ranks")) }
}
number_id! {
    /// Operating-system process id, meaningful on its host only.
    Pid(u32)
}
number_id! {
    /// CUDA device ordinal as the process sees it (after `CUDA_VISIBLE_DEVICES`).
    DeviceIndex(u32)
}
number_id! {
    /// Training step: the last value of `tracer.step()`, starting from 0 steps completed.
    Step(u64)
}
number_id! {
    /// Position of a collective among all collectives of its communicator, from 0; equal on every rank.
    Sequence(u64)
}

/// A GPU, or a part of one (MIG), by the UUID of CUDA and NVML: the same in every process, for any
/// `CUDA_VISIBLE_DEVICES`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    /// As `nvidia-smi` writes it, but without the prefix `GPU-` or `MIG-`: the bytes do not show which of the
    /// two it is.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not with `{:02x}`, which takes a microsecond per UUID: ten thousand ranks' UUIDs are written every
        // second.
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble & 15)]);
        let mut text = String::with_capacity(36);
        for (at, byte) in self.0.iter().enumerate() {
            text.extend(matches!(at, 4 | 6 | 8 | 10).then_some('-'));
            text.extend([digit(byte >> 4), digit(*byte)]);
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for DeviceUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceUuid({self})")
    }
}

/// A communicator, equal on every rank that belongs to it. Zero is no communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CommunicatorId(pub u64);

impl fmt::Display for CommunicatorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0 >> 32)
    }
}

text_id! {
    /// Name of a host as its collector gives it.
    HostName
}
text_id! {
    /// Name of a job: `xpu-top run --job`, the Slurm job, or the script's name.
    JobName
}

impl JobName {
    /// Longest name on the wire; it becomes part of a topic.
    pub const LONGEST: usize = 128;

    /// The name, cut to [`Self::LONGEST`]. `_` replaces each character other than letters, digits, `.`, `_`,
    /// `:` and `-`.
    ///
    /// `/` would end the job's part of a topic, and control characters would reach a terminal.
    pub fn cleaned(text: &str) -> Self {
        let cleaned: String = text
            .chars()
            .take(Self::LONGEST)
            .map(|c| if c.is_ascii_alphanumeric() || "._:-".contains(c) { c } else { '_' })
            .collect();
        Self(if cleaned.is_empty() { "job".to_owned() } else { cleaned })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_is_written_as_nvidia_smi_writes_it() {
        let uuid = DeviceUuid(*b"\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\xab\xcd\xef");
        assert_eq!(uuid.to_string(), "01234567-89ab-cdef-0123-456789abcdef");
    }

    #[test]
    fn a_job_name_is_safe_in_a_topic_and_on_a_terminal() {
        assert_eq!(JobName::cleaned("llama/70b \x1b[31m").as_str(), "llama_70b___31m");
        assert_eq!(JobName::cleaned("").as_str(), "job");
        assert_eq!(JobName::cleaned(&"x".repeat(500)).as_str().len(), JobName::LONGEST);
    }

    #[test]
    fn a_gpu_of_a_process_has_a_rank_of_its_own() {
        let (own, other) = (Rank(3).of_gpu(DeviceIndex(0)), Rank(3).of_gpu(DeviceIndex(10)));
        assert_eq!([Rank(3), own, other].map(|rank| rank.to_string()), ["3", "3.0", "3.10"]);
        assert_eq!(format!("{own:>5}"), "  3.0");
        assert_eq!((other.process(), other.gpu()), (Rank(3), Some(DeviceIndex(10))));
        assert_eq!((Rank(3).process(), Rank(3).gpu()), (Rank(3), None));
        let mut ranks = [Rank(12), other, own, Rank(3)];
        ranks.sort();
        assert_eq!(ranks, [Rank(3), own, other, Rank(12)]);
        assert_eq!(["3", "3.10"].map(|text| text.parse::<Rank>().unwrap()), [Rank(3), other]);
        assert!(
            ["", "x", "3.", "3.x", "3.64", "-1", "1048576"].iter().all(|text| text.parse::<Rank>().is_err())
        );
        assert_eq!(Rank(3).of_gpu(DeviceIndex(64)), Rank(3), "beyond the last");
    }
}
