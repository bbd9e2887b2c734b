//! Names of things: newtypes, so that a rank is never mistaken for a process id.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, de::Error as _};

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

/// Position of a process in its job, 0 to world size - 1, the same on every host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Rank(pub u32);

impl Rank {
    /// Largest number of ranks of a job. Ranks not yet seen take memory too, so a claimed world of billions
    /// is rejected.
    pub const WORLD: u32 = 1 << 20;
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<'de> Deserialize<'de> for Rank {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let rank = u32::deserialize(from)?;
        if rank < Self::WORLD { Ok(Self(rank)) } else { Err(D::Error::custom("no job has that many ranks")) }
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

/// A GPU, or a part of one (MIG), as CUDA and NVML know it: the same on every process, whatever `CUDA_VISIBLE_DEVICES` says.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DeviceUuid(pub [u8; 16]);

impl fmt::Display for DeviceUuid {
    /// As `nvidia-smi` writes it, without the `GPU-` or `MIG-` before it: the number alone does not
    /// distinguish them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // By hand: ten thousand ranks' UUIDs are written every second, and `{:02x}` takes a microsecond for
        // one.
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

    /// The name with everything but letters, digits, `.`, `_`, `:` and `-` made `_`, and cut to [`Self::LONGEST`].
    ///
    /// `/` would end the job's part of a topic, and a name of control characters would reach a terminal.
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
}
