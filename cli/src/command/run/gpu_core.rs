//! The environment that makes CUDA's driver write a core dump of the GPUs on request, and at an exception (an
//! illegal address, an assertion).
//!
//! The driver makes a pipe for each process at its first CUDA call, and writes the file when another process
//! writes to the pipe. Until then, launches cost the same.
//!
//! Core dumps on request and those at exceptions only go together: without those at exceptions, driver 580
//! makes no pipe. `skip_abort` would keep the process alive after a core dump, but the driver would then return
//! the error of an exception late, and calls in between would succeed (`cudaDeviceSynchronize`, a copy of data
//! that the kernel has not written). A program could store wrong results, or end with 0.

use std::{ffi::OsString, fs, os::unix::ffi::OsStrExt as _, path::Path, time::SystemTime};

use xpu_wire::{
    endpoint::RuntimeDir,
    gpu_cores::{self, FILE, LARGEST, PIPE},
};

const ENABLE: &str = "CUDA_ENABLE_USER_TRIGGERED_COREDUMP";
const AT_EXCEPTION: &str = "CUDA_ENABLE_COREDUMP_ON_EXCEPTION";

/// The contents of memories are left out, because they are large and may be secret; modules are included for
/// the names of kernels.
const WITHOUT: &str = "skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory,\
    skip_constbank_memory";

/// Variables that configure core dumps of GPUs. If the user has set one, all stay unchanged.
const OTHERS: [&str; 5] =
    [ENABLE, AT_EXCEPTION, "CUDA_COREDUMP_PIPE", "CUDA_COREDUMP_FILE", "CUDA_COREDUMP_GENERATION_FLAGS"];

/// Variables in which launchers give the number of ranks of a host.
const RANKS_HERE: [&str; 4] =
    ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"];

/// torchrun's option for the number of ranks of a host.
const OF_TORCHRUN: [&str; 2] = ["--nproc-per-node", "--nproc_per_node"];

/// The variables for the program; an error if core dumps of GPUs are configured already.
pub(super) fn variables(runtime: &RuntimeDir) -> Result<Vec<(&'static str, OsString)>, String> {
    let folder = runtime.gpu_cores();
    let pipe = folder.join(format!("{PIPE}%p"));
    // An outer `xpu-top run --gpu-core` has set all variables.
    if std::env::var_os("CUDA_COREDUMP_PIPE").is_some_and(|set| set == pipe) {
        return Ok(Vec::new());
    }
    if let Some(set) = OTHERS.into_iter().find(|name| std::env::var_os(name).is_some()) {
        return Err(format!("{set} is set already"));
    }
    let made = fs::create_dir_all(&folder);
    made.map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    gpu_cores::remove_old(&folder, &[PIPE, FILE], SystemTime::now());
    Ok(vec![
        (ENABLE, "1".into()),
        (AT_EXCEPTION, "1".into()),
        ("CUDA_COREDUMP_PIPE", pipe.into()),
        ("CUDA_COREDUMP_FILE", folder.join(format!("{FILE}%p")).into()),
        ("CUDA_COREDUMP_GENERATION_FLAGS", WITHOUT.into()),
    ])
}

/// A sentence if the folder lacks the space for the core dumps of all ranks of this host.
pub(super) fn lacks_space(runtime: &RuntimeDir, command: &[OsString]) -> Option<String> {
    let folder = runtime.gpu_cores();
    let ranks = ranks_here(|name| std::env::var(name).ok(), command, Path::new("/dev"));
    lacks(&folder, gpu_cores::free(&folder)?, ranks)
}

fn lacks(folder: &Path, free: u64, ranks: u64) -> Option<String> {
    let needed = ranks * LARGEST;
    (free < needed).then(|| {
        format!(
            "{} has {} MB free, and the GPU core dumps of {ranks} ranks may need {} MB: kernels of some GPUs may stay unknown",
            folder.display(),
            free / 1_000_000,
            needed / 1_000_000
        )
    })
}

/// The number of ranks of this host: the largest that a launcher gives, because one launcher may start another;
/// else the number of its GPUs, at least 1.
fn ranks_here(variable: impl Fn(&str) -> Option<String>, command: &[OsString], devices: &Path) -> u64 {
    let set = RANKS_HERE.iter().filter_map(|name| variable(name)?.parse::<u64>().ok());
    let gpus = || {
        let names = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let is_gpu = |name: &OsString| {
            let number = name.as_bytes().strip_prefix(b"nvidia");
            number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit))
        };
        names.filter(is_gpu).count() as u64
    };
    // torchrun also takes words: `gpu`, `auto`.
    let by_torchrun = nproc_per_node(command).map(|number| number.parse().unwrap_or_else(|_| gpus()));
    set.chain(by_torchrun).max().unwrap_or_else(gpus).max(1)
}

/// The value of torchrun's option.
fn nproc_per_node(command: &[OsString]) -> Option<&str> {
    let mut words = command.iter().filter_map(|word| word.to_str());
    while let Some(word) = words.next() {
        let (name, value) = word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        if OF_TORCHRUN.contains(&name) {
            return value.or_else(|| words.next());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_space_is_reported_for_the_ranks_of_this_host() {
        let devices = tempfile::tempdir().expect("a folder");
        for name in ["nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"] {
            fs::write(devices.path().join(name), "").expect("written");
        }
        let ranks_of = |set: Option<&str>, line: &str| {
            let command: Vec<_> = line.split(' ').map(OsString::from).collect();
            let variable = |name: &str| set.filter(|_| name == "SLURM_NTASKS_PER_NODE").map(str::to_owned);
            ranks_here(variable, &command, devices.path())
        };
        let ranks = |set| ranks_of(set, "python train.py");
        assert_eq!((ranks(Some("8")), ranks(Some("many")), ranks(None)), (8, 2, 2));
        // Slurm starts one torchrun on each host.
        let torchrun = |options| ranks_of(Some("1"), &format!("torchrun {options} train.py"));
        assert_eq!((torchrun("--nproc-per-node 8"), torchrun("--nproc_per_node=4")), (8, 4));
        assert_eq!((torchrun("--nproc-per-node=gpu"), torchrun("--nnodes 2")), (2, 1));
        assert_eq!(ranks_here(|_| None, &[], &devices.path().join("none")), 1);
        let folder = Path::new("/run/gpu");
        assert_eq!(lacks(folder, 8 * LARGEST, 8), None);
        assert_eq!(
            lacks(folder, 300_000_000, 8).expect("too little"),
            "/run/gpu has 300 MB free, and the GPU core dumps of 8 ranks may need 1600 MB: kernels of some GPUs may stay unknown"
        );
    }
}
