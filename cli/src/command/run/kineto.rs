//! The environment that lets PyTorch's own profiler, Kineto, be started from outside.
//!
//! Variables that are already set are kept, because another daemon may use Kineto too. If no daemon answers,
//! Kineto asks again, on its own thread.

use std::{
    ffi::OsString,
    fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
};

use xpu_wire::endpoint::{BasePort, RuntimeDir};

const USE_DAEMON: &str = "KINETO_USE_DAEMON";
const CONFIG: &str = "KINETO_CONFIG";

/// The folder of the daemon's socket. Without it, Kineto polls the one daemon that has dynolog's name.
const FOLDER: &str = "KINETO_IPC_SOCKET_DIR";

/// The name of the daemon's socket in that folder.
const DAEMON: &str = "dynolog";

/// The file that Kineto reads by default.
const USUAL_CONFIG: &str = "/etc/libkineto.conf";

/// The configuration with which Kineto polls every second instead of every five, so a trace begins sooner.
const ASK_OFTEN: &str = "ON_DEMAND_CONFIG_UPDATE_INTERVAL_SECS=1\n";

/// The variables for the program. The collector serves already, if there is one.
pub(super) fn variables(runtime: &RuntimeDir, base: BasePort) -> Vec<(&'static str, OsString)> {
    let mut all = Vec::new();
    // An outer `xpu-top run` may have set the folder of another collector.
    let is_of_another = std::env::var_os(FOLDER).is_some_and(|set| runtime.is_for_kineto(set));
    if is_of_another || !(is_set(USE_DAEMON) || is_set(FOLDER)) {
        match served(runtime.kineto(base)) {
            Some(folder) => all.push((FOLDER, folder.into())),
            None if is_of_another => all.push((FOLDER, OsString::new())),
            None => {}
        }
    }
    if !is_set(USE_DAEMON) {
        all.push((USE_DAEMON, "1".into()));
    }
    // A user's own settings are kept, because there can be only one file.
    if !is_set(CONFIG)
        && !Path::new(USUAL_CONFIG).exists()
        && let Some(path) = config(runtime)
    {
        all.push((CONFIG, path.into()));
    }
    all
}

/// The folder, if a collector serves there under this spelling: Kineto ends its process if an answer comes from
/// another.
fn served(folder: PathBuf) -> Option<PathBuf> {
    let path = folder.join(DAEMON);
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect(&path).ok()?;
    (socket.peer_addr().ok()?.as_pathname() == Some(&path)).then_some(folder)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some()
}

/// The file, written if it does not exist; `None` if that fails, and then Kineto asks less often.
fn config(runtime: &RuntimeDir) -> Option<PathBuf> {
    let path = runtime.path().join("kineto.conf");
    if fs::read_to_string(&path).is_ok_and(|found| found == ASK_OFTEN) {
        return Some(path);
    }
    // Another rank may read it at any moment, so it is written completely or not at all.
    let new = runtime.path().join(format!("kineto.conf.{}", std::process::id()));
    let written = fs::create_dir_all(runtime.path()).and_then(|()| fs::write(&new, ASK_OFTEN));
    written.and_then(|()| fs::rename(&new, &path)).ok()?;
    Some(path)
}
