//! The calls that can hold a thread.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An interposed call that can block its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum Call {
    None = 0,
    Collective = 1,
    GroupEnd = 2,
    CommunicatorInit = 3,
    CommunicatorEnd = 4,
    StreamSynchronize = 5,
    DeviceSynchronize = 6,
    EventSynchronize = 7,
    /// A copy or an allocation that may wait for the GPU.
    Memory = 8,
    GraphLaunch = 9,
    /// No single call: the thread asks again and again whether the GPU is done.
    Query = 10,
    /// A call of a hook newer than this reader.
    Unknown = u32::MAX,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::None => "no call",
            Self::Collective => "an NCCL operation",
            Self::GroupEnd => "ncclGroupEnd",
            Self::CommunicatorInit => "making a communicator",
            Self::CommunicatorEnd => "ending a communicator",
            Self::StreamSynchronize => "cudaStreamSynchronize",
            Self::DeviceSynchronize => "cudaDeviceSynchronize",
            Self::EventSynchronize => "cudaEventSynchronize",
            Self::Memory => "a copy or an allocation",
            Self::GraphLaunch => "cudaGraphLaunch",
            Self::Query => "a loop of cudaEventQuery or cudaStreamQuery",
            Self::Unknown => "a call this version does not know",
        })
    }
}

impl Call {
    pub fn from_word(word: u32) -> Self {
        match word {
            0 => Self::None,
            1 => Self::Collective,
            2 => Self::GroupEnd,
            3 => Self::CommunicatorInit,
            4 => Self::CommunicatorEnd,
            5 => Self::StreamSynchronize,
            6 => Self::DeviceSynchronize,
            7 => Self::EventSynchronize,
            8 => Self::Memory,
            9 => Self::GraphLaunch,
            10 => Self::Query,
            _ => Self::Unknown,
        }
    }
}
