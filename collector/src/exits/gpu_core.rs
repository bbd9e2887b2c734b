//! Finds the kernel that an exception of the GPU stopped: a separate process of this program reads the core
//! dump that CUDA's driver wrote (`xpu-top run --gpu-core`), and removes it.

use std::{
    io::{self, Write},
    path::Path,
    process::Command,
    time::Instant,
};

use xpu_wire::frame::FailedKernel;

use super::child_task::ChildTask;
use crate::stacks::{end_with_the_collector, failed_kernel};

/// A process that reads the core dump. `None` if there is no core dump, or the process cannot be started.
pub(super) fn task(program: &Path, file: &Path, deadline: Instant) -> Option<ChildTask> {
    use std::os::unix::process::CommandExt as _;
    file.exists().then_some(())?;
    let mut command = Command::new(program);
    command.arg0("xpu-collector").arg("--read-gpu-core").arg(file);
    ChildTask::start(&mut command, &[], deadline)
        .inspect_err(|error| tracing::warn!("cannot start a process to read a core dump: {error}"))
        .ok()
}

/// Implements `--read-gpu-core`: writes the kernel as JSON, if there is one.
pub fn read(file: &Path, to: &mut impl Write) -> io::Result<()> {
    end_with_the_collector(super::READ_LIMIT);
    Ok(serde_json::to_writer(to, &failed_kernel(file)?)?)
}

/// The kernel in the process's output, if there is one.
pub(super) fn kernel(said: &[u8]) -> Option<FailedKernel> {
    serde_json::from_slice(said).ok()?
}
