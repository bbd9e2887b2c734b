//! Reads properties of a rank's process that its end report needs, while the process lives.

use std::{
    env,
    fs::{self, File},
    io::Read as _,
    path::PathBuf,
};

use xpu_wire::{endpoint::variable, gpu_cores, id::Pid};

/// Bytes of an environment that are read.
const MOST: u64 = 1 << 20;

/// Plugins of one rank.
const PLUGINS: usize = 8;

/// Longest text that is passed on.
const TEXT: usize = 256;

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct ProcessContext {
    /// The plugins from the rank's environment, else from this collector's.
    pub plugins: Vec<PathBuf>,
    /// The rank's Python interpreter, if it runs in one.
    pub python: Option<PathBuf>,
    pub pod_name: String,
    pub pod_ip: String,
    /// The core dump that CUDA's driver writes of the rank's GPUs at an exception, if `xpu-top run
    /// --gpu-core` prepared it.
    pub gpu_core: Option<PathBuf>,
}

impl ProcessContext {
    pub(crate) fn of(pid: Pid) -> Self {
        let mut bytes = Vec::new();
        let opened = File::open(format!("/proc/{pid}/environ"));
        if let Ok(file) = opened {
            let _ = file.take(MOST).read_to_end(&mut bytes);
        }
        let text = String::from_utf8_lossy(&bytes);
        let variable = |name: &str| {
            text.split('\0').find_map(|entry| entry.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        let plugins =
            [variable::EXIT_PLUGIN, variable::EXIT_PLUGIN_OF_XPU_TIMER].into_iter().find_map(&variable);
        let plugins = plugins.or_else(|| env::var(variable::EXIT_PLUGIN).ok()).unwrap_or_default();
        let program = fs::read_link(format!("/proc/{pid}/exe")).ok();
        let is_python = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python"))
        };
        let brief = |name| -> String {
            let text = variable(name).unwrap_or_default();
            text.chars().filter(|c| !c.is_control()).take(TEXT).collect()
        };
        let is_prepared = variable("CUDA_ENABLE_COREDUMP_ON_EXCEPTION").is_some_and(|value| value == "1");
        Self {
            plugins: list(&plugins),
            python: program.filter(is_python),
            pod_name: brief("POD_NAME"),
            pod_ip: brief("POD_IP"),
            gpu_core: variable("CUDA_COREDUMP_FILE")
                .filter(|_| is_prepared)
                .and_then(|file| own_core(&file, pid)),
        }
    }
}

/// The path of a core dump that `xpu-top` configured. Other core dumps belong to the user.
fn own_core(file: &str, pid: Pid) -> Option<PathBuf> {
    let path = PathBuf::from(file.replace("%p", &pid.to_string()));
    let is_ours = path.file_name()?.to_str()?.starts_with(gpu_cores::FILE);
    is_ours.then_some(path)
}

fn list(text: &str) -> Vec<PathBuf> {
    text.split(',').map(str::trim).filter(|path| !path.is_empty()).take(PLUGINS).map(PathBuf::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_plugins_is_parsed() {
        assert_eq!(list(" /a.py,/b.py,,"), [PathBuf::from("/a.py"), PathBuf::from("/b.py")]);
        assert!(list("").is_empty());
    }

    #[test]
    fn only_core_dumps_that_xpu_top_prepared_are_read() {
        let of = |file| own_core(file, Pid(7));
        assert_eq!(of("/run/gpu/gpu-core.%p"), Some(PathBuf::from("/run/gpu/gpu-core.7")));
        assert_eq!((of("/home/a/core.%p"), of("/")), (None, None));
    }
}
