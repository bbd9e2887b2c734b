//! A rank's end, in a document.

use serde::{Deserialize, Serialize};
use xpu_wire::frame::{
    Ending, FailedKernel, PythonException, RankExit, RefusedMemory, StackFrame, signal_name,
};

use super::MemorySiteStatus;

use crate::finding::Class;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExitStatus {
    pub class: Class,
    /// Time by the host's clock, in seconds since the Unix epoch.
    pub at_s: f64,
    /// The code it exited with, or the signal that ended it; neither if unknown.
    pub code: Option<i32>,
    pub signal: Option<String>,
    /// The process that asked it to end before, if any: launchers do so when another rank has ended.
    pub asked_by: Option<String>,
    pub exception: Option<String>,
    pub message: Option<String>,
    /// The kernel that an exception of the GPU stopped, in jobs started with `xpu-top run
    /// --gpu-core`.
    pub kernel: Option<FailedKernel>,
    /// The GPU memory that CUDA refused, if that is why the rank ended.
    pub gpu_memory: Option<GpuMemory>,
    /// Its end, as a sentence without the rank's name.
    pub text: String,
    /// The frames where it ended, outermost first.
    pub frames: Vec<StackFrame>,
}

/// GPU memory when an allocation failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuMemory {
    pub requested_bytes: u64,
    /// Allocated by the process through the CUDA runtime and not freed: caching allocators keep more than
    /// they use.
    pub held_bytes: u64,
    /// The number of first steps, and what the process held after them.
    pub first_step: Option<u64>,
    pub held_at_first_step_bytes: Option<u64>,
    /// Memory used on the GPU by all processes, read at most a second before.
    pub used_bytes: Option<u64>,
    pub size_bytes: Option<u64>,
    /// Free memory on the GPU when the allocation was refused.
    #[serde(default)]
    pub free_bytes: Option<u64>,
    /// Decrease of the GPU's free memory during NCCL's calls.
    #[serde(default)]
    pub nccl_bytes: Option<u64>,
    /// Memory that PyTorch had reserved and did not use, from its message.
    #[serde(default)]
    pub pytorch_unused_bytes: Option<u64>,
    /// Call sites by growth since the first steps, largest first; before those steps, by the memory they
    /// hold.
    #[serde(default)]
    pub sites: Vec<MemorySiteStatus>,
}

impl From<&RefusedMemory> for GpuMemory {
    fn from(memory: &RefusedMemory) -> Self {
        Self {
            requested_bytes: memory.requested,
            held_bytes: memory.held,
            first_step: memory.held_at.map(|(step, _)| step.0),
            held_at_first_step_bytes: memory.held_at.map(|(_, bytes)| bytes),
            used_bytes: memory.used.map(|(used, _)| used),
            size_bytes: memory.used.map(|(_, size)| size),
            free_bytes: memory.free,
            nccl_bytes: memory.nccl,
            pytorch_unused_bytes: None,
            sites: memory.sites.iter().map(MemorySiteStatus::from).collect(),
        }
    }
}

impl From<&RankExit> for ExitStatus {
    fn from(exit: &RankExit) -> Self {
        let exception = exit.exception.as_ref();
        Self {
            class: exit.cause().into(),
            at_s: exit.at.0 as f64 / 1e9,
            code: match exit.ending {
                Ending::Code(code) => Some(code),
                _ => None,
            },
            signal: match &exit.ending {
                Ending::Signal(signal) => Some(signal_name(signal.number)),
                Ending::OutOfMemory { .. } => Some("SIGKILL".to_owned()),
                _ => None,
            },
            asked_by: exit
                .asked
                .as_ref()
                .map(|asked| format!("{} {}", asked.name, asked.by).trim().to_owned()),
            exception: exception.map(|exception| exception.kind.clone()),
            message: exception.map(|exception| exception.message.clone()),
            kernel: exit.kernel.clone(),
            gpu_memory: exit.memory.as_ref().map(|memory| GpuMemory {
                pytorch_unused_bytes: exception.and_then(PythonException::unused_by_pytorch),
                ..GpuMemory::from(memory)
            }),
            text: exit.sentence(),
            frames: exit.frames().to_vec(),
        }
    }
}
