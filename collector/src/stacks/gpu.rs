//! Reads the kernels on the GPUs of a rank. CUDA's driver writes a core dump of the GPUs when another process
//! writes to a pipe (`CUDA_ENABLE_USER_TRIGGERED_COREDUMP`). **This ends the kernels there**, and usually the
//! rank.

mod core;

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use memmap2::Mmap;
use xpu_wire::{
    frame::{FailedKernel, StackFrame, ThreadStack},
    gpu_cores::{self, FILE, LARGEST, PIPE},
    id::Pid,
};

use super::brief::brief;

/// Longest wait for the core dump, which has 20 to 200 MB, mostly the code of loaded modules.
const PATIENCE: Duration = Duration::from_secs(50);

const LOOK: Duration = Duration::from_millis(50);

/// Longest wait for the driver's thread to read the pipe again. The stop for its stack interrupted its
/// reading, and it reads again once it continues.
const RESTARTED: Duration = Duration::from_secs(2);

/// Number of kernels reported per rank: those with an exception, then those with most blocks.
const KERNELS: usize = 16;

/// The kernels on the GPUs of a rank, one thread for each; or why they are unknown.
pub(super) fn threads(pid: Pid) -> Result<Vec<ThreadStack>, String> {
    let prepared = Prepared::of(pid)?;
    let folder = prepared.file.parent().unwrap_or_else(|| Path::new("/"));
    has_space(folder, gpu_cores::free(folder))?;
    prepared.trigger(|| thread::sleep(LOOK))?;
    let until = Instant::now() + PATIENCE;
    let mut last = "it did not appear".to_owned();
    let mut before = 0;
    while Instant::now() < until {
        thread::sleep(LOOK);
        let Some((file, length)) = open(&prepared.file) else { continue };
        if std::mem::replace(&mut before, length) != length {
            continue;
        }
        // SAFETY: if another process truncates the file meanwhile, this process ends. It serves only this
        // rank.
        let read = unsafe { Mmap::map(&file) }.map_err(|error| error.to_string());
        match read.and_then(|bytes| core::kernels(&bytes).map_err(|error| error.to_string())) {
            Ok(kernels) => {
                let _ = fs::remove_file(&prepared.file);
                return Ok(threads_of(&kernels));
            }
            Err(error) => last = error,
        }
    }
    let _ = fs::remove_file(&prepared.file);
    Err(format!(
        "the driver did not write its GPUs' core dump {} within {} s: {last}",
        prepared.file.display(),
        PATIENCE.as_secs()
    ))
}

/// Refuses if the core dump may not fit: the request would end the rank, and its kernels would stay unknown.
fn has_space(folder: &Path, free: Option<u64>) -> Result<(), String> {
    match free {
        Some(free) if free < LARGEST => Err(format!(
            "its GPUs' core dump was not requested: it may need {} MB, and {} has {} MB free",
            LARGEST / 1_000_000,
            folder.display(),
            free / 1_000_000
        )),
        _ => Ok(()),
    }
}

/// The kernel that an exception stopped, from the core dump of a process that has ended. Removes the file.
pub(crate) fn failed_kernel(path: &Path) -> io::Result<Option<FailedKernel>> {
    let opened = open(path);
    let _ = fs::remove_file(path);
    let Some((file, _)) = opened else { return Ok(None) };
    // SAFETY: if another process truncates the file meanwhile, this process ends. It serves only this rank.
    let bytes = unsafe { Mmap::map(&file) }?;
    let kernels = core::kernels(&bytes).map_err(io::Error::other)?;
    Ok(kernels.into_iter().find_map(|kernel| {
        let core::Exception { error, block } = kernel.exception?;
        let (grid_size, block_size) = kernel.size.unzip();
        Some(FailedKernel {
            device: kernel.device,
            name: brief(&kernel.name.unwrap_or_default()),
            error,
            block,
            grid_size,
            block_size,
            blocks: kernel.blocks,
            sms: kernel.sms,
        })
    }))
}

/// Opens a file of this user, even if it is not complete yet. Returns the file and its length.
fn open(path: &Path) -> Option<(File, u64)> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    let meta = file.metadata().ok()?;
    // SAFETY: getuid has no precondition.
    let is_ours = meta.is_file() && (meta.uid() == unsafe { libc::getuid() } || meta.uid() == 0);
    (is_ours && meta.len() > 0).then_some((file, meta.len()))
}

/// A process whose driver waits for a request on its pipe.
struct Prepared {
    pipe: PathBuf,
    file: PathBuf,
}

impl Prepared {
    fn of(pid: Pid) -> Result<Self, String> {
        let environment = fs::read(format!("/proc/{pid}/environ"))
            .map_err(|error| format!("cannot read its environment: {error}"))?;
        let value = |name: &str| {
            environment
                .split(|&byte| byte == 0)
                .find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
        };
        let is_prepared = value("CUDA_ENABLE_USER_TRIGGERED_COREDUMP").is_some_and(|value| value == b"1");
        let path = |name, begin: &str| {
            let path = PathBuf::from(String::from_utf8_lossy(value(name)?).replace("%p", &pid.to_string()));
            let is_ours = path.file_name()?.to_str()?.starts_with(begin);
            is_ours.then_some(path)
        };
        match (path("CUDA_COREDUMP_PIPE", PIPE), path("CUDA_COREDUMP_FILE", FILE)) {
            (Some(pipe), Some(file)) if is_prepared => Ok(Self { pipe, file }),
            // Reads only a core dump that `xpu-top` configured: other core dumps belong to the user.
            _ => Err("the kernels on its GPUs cannot be read: start the job with `xpu-top run --gpu-core`"
                .to_owned()),
        }
    }

    /// Writes to the pipe. Calls `wait` while the pipe has no reader.
    fn trigger(&self, mut wait: impl FnMut()) -> Result<(), String> {
        let refused = |error: io::Error| {
            format!("cannot ask for its GPUs' core dump by {}: {error}", self.pipe.display())
        };
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW);
        let until = Instant::now() + RESTARTED;
        let mut pipe = loop {
            match options.open(&self.pipe) {
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && Instant::now() < until => wait(),
                opened => break opened.map_err(refused)?,
            }
        };
        if !pipe.metadata().map_err(refused)?.file_type().is_fifo() {
            return Err(format!("{} is no pipe: its driver did not make it", self.pipe.display()));
        }
        // The file may be left from an earlier process with this number.
        let _ = fs::remove_file(&self.file);
        pipe.write_all(b"1\n").map_err(refused)
    }
}

/// A thread for each kernel, with the kernel, its size and its extent as its frames. Sizes differ less between ranks
/// than extents, so they come first.
fn threads_of(kernels: &[core::Kernel]) -> Vec<ThreadStack> {
    let thread = |device: u32, lines: Vec<String>| ThreadStack {
        name: format!("{} {device}", ThreadStack::GPU),
        frames: lines
            .into_iter()
            .map(|function| StackFrame { function, file: String::new(), line: 0 })
            .collect(),
        ..ThreadStack::default()
    };
    if kernels.is_empty() {
        return vec![thread(0, vec![ThreadStack::NO_KERNEL.to_owned()])];
    }
    let shown = kernels.iter().take(KERNELS);
    let lines = |kernel: &core::Kernel| {
        let name = brief(kernel.name.as_deref().unwrap_or("a kernel of no loaded module"));
        let extent = (kernel.blocks > 0).then(|| kernel.extent());
        let lines = [Some(name), kernel.stopped_by(), kernel.sized(), extent];
        lines.into_iter().flatten().collect()
    };
    shown.map(|kernel| thread(kernel.device, lines(kernel))).collect()
}

#[cfg(test)]
mod tests;
