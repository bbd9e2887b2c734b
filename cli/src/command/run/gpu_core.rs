//! The environment that makes CUDA's driver write a core dump of the GPUs on request, and at an exception (an
//! illegal address, an assertion).
//!
//! The driver makes a pipe for each process at its first CUDA call, and writes the file when another process
//! writes to the pipe. Until then, nothing changes, and launches cost the same.
//!
//! A core dump at an exception is never combined with `skip_abort`: the driver would return the error late,
//! and calls in between would succeed (`cudaDeviceSynchronize`, a copy of data that the kernel has not
//! written). A program could store wrong results, or end with 0 (H100, driver 580). If the variable for
//! exceptions is not set, enabling core dumps on request also enables those at exceptions.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    time::{Duration, SystemTime},
};

use xpu_wire::{
    endpoint::{GPU_CORE as FILE, GPU_PIPE as PIPE, RuntimeDir},
    id::Pid,
    process,
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

/// Age at which a file is old. A collector reads a core dump within some seconds of the end of its process.
const UNREAD: Duration = Duration::from_mins(1);

/// The variables for the program; an error if core dumps of GPUs are configured already.
pub(super) fn variables(
    runtime: &RuntimeDir,
    at_exception: bool,
) -> Result<Vec<(&'static str, OsString)>, String> {
    let folder = runtime.path().join("gpu");
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
    remove_old(&folder, SystemTime::now());
    let (at_exception, flags) =
        if at_exception { ("1", WITHOUT.to_owned()) } else { ("0", format!("{WITHOUT},skip_abort")) };
    Ok(vec![
        (ENABLE, "1".into()),
        (AT_EXCEPTION, at_exception.into()),
        ("CUDA_COREDUMP_PIPE", pipe.into()),
        ("CUDA_COREDUMP_FILE", folder.join(format!("{FILE}%p")).into()),
        ("CUDA_COREDUMP_GENERATION_FLAGS", flags.into()),
    ])
}

/// Removes the pipes and files of ended processes, except recent files that a collector may still read.
fn remove_old(folder: &Path, now: SystemTime) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let number = [PIPE, FILE].iter().find_map(|begin| name.strip_prefix(begin)?.parse().ok());
        let written = entry.metadata().and_then(|file| file.modified());
        let is_new = written.is_ok_and(|at| now.duration_since(at).is_ok_and(|age| age < UNREAD));
        if number.is_some_and(|number| process::state(Pid(number)).is_none()) && !is_new {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leftovers_of_ended_processes_are_removed_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let [gone, own] = [u32::MAX - 1, std::process::id()];
        let names =
            [format!("{PIPE}{gone}"), format!("{FILE}{gone}"), format!("{PIPE}{own}"), "notes".to_owned()];
        for name in &names {
            fs::write(folder.path().join(name), "").expect("written");
        }
        let stays = || names.each_ref().map(|name| folder.path().join(name).exists());
        remove_old(folder.path(), SystemTime::now());
        assert_eq!(stays(), [true; 4], "a collector may be about to read them");
        remove_old(folder.path(), SystemTime::now() + UNREAD);
        assert_eq!(stays(), [false, false, true, true]);
    }
}
