//! Makes the hook NCCL's profiler plugin, if nobody else has set one. Another plugin stays, and the hook is
//! called in front of it (`hook/src/interpose/plugin/chain.rs`).

use std::{
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use xpu_wire::endpoint::variable;

const PLUGIN: &str = "NCCL_PROFILER_PLUGIN";

/// The plugin that NCCL loads if none is named.
const USUAL: &str = "libnccl-profiler.so";

/// The loader's default folders, in addition to its cache.
const FOLDERS: [&str; 6] = [
    "/lib64",
    "/usr/lib64",
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/local/lib",
];

/// The variable for the program, if any.
pub(super) fn variable(hook: &Path) -> Option<(&'static str, OsString)> {
    let set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let is = |name: &str, value: &str| set(name).is_some_and(|found| found == value);
    // If the hook does not interpose `dlsym`, NCCL may find a version of the plugin interface that the hook
    // does not know.
    let is_off = is(variable::PLUGIN, "0") || is(variable::DISABLE, "1") || is(variable::DLSYM, "0");
    if is_off || env::var_os(PLUGIN).is_some() {
        return None;
    }
    let configured = set("NCCL_CONF_FILE")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&set("HOME")?).join(".nccl.conf")))
        .into_iter()
        .chain([PathBuf::from("/etc/nccl.conf")])
        .any(|path| fs::read_to_string(path).is_ok_and(|text| names_plugin(&text)));
    let path = set("LD_LIBRARY_PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain(FOLDERS.iter().map(PathBuf::from));
    let installed = folders.any(|folder| folder.join(USUAL).exists());
    (!configured && !installed).then(|| (PLUGIN, hook.into()))
}

/// Whether a configuration file of NCCL's (`NAME=VALUE` lines) names a plugin.
fn names_plugin(text: &str) -> bool {
    text.lines().filter_map(|line| line.split_once('=')).any(|(name, _)| name.trim() == PLUGIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plugin_in_nccls_configuration_is_respected() {
        assert!(names_plugin("NCCL_DEBUG=INFO\nNCCL_PROFILER_PLUGIN=inspector\n"));
        assert!(!names_plugin("NCCL_DEBUG=INFO\n# NCCL_PROFILER_PLUGIN=inspector\n"));
    }
}
