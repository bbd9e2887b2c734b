//! What PyTorch's own profiler, Kineto, has to find in its environment to be asked for a trace from outside.
//!
//! What is set already stays: somebody else may ask it too. Where nobody answers it, it asks again, on a thread of its own.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use xpu_wire::endpoint::RuntimeDir;

const USE_DAEMON: &str = "KINETO_USE_DAEMON";
const CONFIG: &str = "KINETO_CONFIG";

/// What Kineto reads where no file is named.
const USUAL_CONFIG: &str = "/etc/libkineto.conf";

/// It asks what to do every second in place of every five: a trace begins the sooner.
const ASK_OFTEN: &str = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n";

/// What is to be set for the program.
pub(super) fn variables(runtime: &RuntimeDir) -> Vec<(&'static str, OsString)> {
    let mut all = Vec::new();
    if !is_set(USE_DAEMON) {
        all.push((USE_DAEMON, "1".into()));
    }
    // Who has settings of their own keeps them: there is one file only.
    if !is_set(CONFIG)
        && !Path::new(USUAL_CONFIG).exists()
        && let Some(path) = config(runtime)
    {
        all.push((CONFIG, path.into()));
    }
    all
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// The file, written if it is not there; `None` where it cannot be: then Kineto asks less often.
fn config(runtime: &RuntimeDir) -> Option<PathBuf> {
    let path = runtime.path().join("kineto.conf");
    if fs::read_to_string(&path).is_ok_and(|found| found == ASK_OFTEN) {
        return Some(path);
    }
    // Another rank may read it meanwhile: it is whole or not there.
    let new = runtime.path().join(format!("kineto.conf.{}", std::process::id()));
    let written = fs::create_dir_all(runtime.path()).and_then(|()| fs::write(&new, ASK_OFTEN));
    written.and_then(|()| fs::rename(&new, &path)).ok()?;
    Some(path)
}
