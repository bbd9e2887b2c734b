//! Runs the user's plugins: once per exit and file, each in its own Python process.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use xpu_model::status::ExitStatus;
use xpu_wire::{
    endpoint,
    frame::{Ending, RankExit},
    id::HostName,
};

use super::{
    Departure,
    child_task::{ChildTask, Outcome},
};

/// Time limit of a plugin.
const LIMIT: Duration = Duration::from_secs(30);

const SOURCE: &str = include_str!("plugin.py");

/// xpu-timer's value for unknown.
const UNKNOWN: &str = "NOT_SET";

/// One plugin file, and the input of its process.
#[derive(Debug)]
pub(super) struct Plugin {
    file: PathBuf,
    python: Option<PathBuf>,
    input: Vec<u8>,
}

pub(super) fn of(departure: &Departure) -> Vec<Plugin> {
    let context = &departure.context;
    if context.plugins.is_empty() {
        return Vec::new();
    }
    let input = document(departure).to_string().into_bytes();
    let one =
        |file: &PathBuf| Plugin { file: file.clone(), python: context.python.clone(), input: input.clone() };
    context.plugins.iter().map(one).collect()
}

fn document(Departure { report, frames, context, .. }: &Departure) -> Value {
    let or_unknown = |text: &str| if text.is_empty() { UNKNOWN.to_owned() } else { text.to_owned() };
    let RankExit { job, rank, at, exception, ending, .. } = report;
    json!({
        "report": self::report(report, &endpoint::host_name()),
        "infos": {
            "time": at.0 / 1_000_000_000, "rank": rank, "ip": or_unknown(&context.pod_ip),
            "pod_name": or_unknown(&context.pod_name), "job_name": job,
        },
        "exception": exception,
        "signal": match ending { Ending::Signal(signal) => Some(signal.number), _ => None },
        "frames": frames,
    })
}

/// A rank's end as a JSON document.
pub(crate) fn report(exit: &RankExit, host: &HostName) -> Value {
    let RankExit { job, rank, pid, step, .. } = exit;
    json!({
        "job": job, "rank": rank, "pid": pid, "host": host, "step": step, "exit": ExitStatus::from(exit),
    })
}

impl Plugin {
    pub(super) fn name(&self) -> std::path::Display<'_> {
        self.file.display()
    }

    pub(super) fn start(&self, now: Instant) -> Result<ChildTask, String> {
        trusted(&self.file)?;
        let python = self.python.as_deref().filter(|python| trusted(python).is_ok());
        let mut command = Command::new(python.unwrap_or_else(|| Path::new("python3")));
        command.args(["-c", SOURCE]).arg(&self.file).current_dir("/");
        for name in [endpoint::variable::EXIT_PLUGIN, endpoint::variable::KEY_FILE] {
            command.env_remove(name);
        }
        ChildTask::start(&mut command, &self.input, now + LIMIT)
            .map_err(|error| format!("cannot start Python: {error}"))
    }

    pub(super) fn log(&self, outcome: &Outcome) {
        outcome.log(&format!("exit plugin {}", self.name()), LIMIT);
    }
}

/// Refuses a file that another user can have written: this user or root must own it and every folder on its
/// path.
fn trusted(file: &Path) -> Result<(), String> {
    const SHARED: u32 = 0o022;
    const STICKY: u32 = 0o1000;
    let refused = |path: &Path, why: &str| Err(format!("not run: {} {why}", path.display()));
    if !file.is_absolute() {
        return refused(file, "is not an absolute path; write one into XPU_TOP_EXIT_PLUGIN");
    }
    let whole = fs::canonicalize(file).map_err(|error: io::Error| format!("cannot be read: {error}"))?;
    for path in whole.ancestors() {
        let found = fs::metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
        if path == whole && !found.is_file() {
            return refused(path, "is not a file");
        }
        if found.uid() != 0 && found.uid() != endpoint::user_id() {
            return refused(path, "belongs to another user; copy it to a folder that you own");
        }
        let sticky = found.is_dir() && found.mode() & STICKY != 0;
        if found.mode() & SHARED != 0 && !sticky {
            return refused(path, "can be written by others; chmod go-w it");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn code_of_other_users_is_not_run() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("plugin.py");
        fs::write(&file, "").unwrap();
        let set = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        set(&file, 0o644);
        assert_eq!(trusted(&file), Ok(()));
        set(&file, 0o664);
        assert!(trusted(&file).unwrap_err().contains("chmod go-w"));
        set(&file, 0o600);
        set(dir.path(), 0o777);
        assert!(trusted(&file).is_err(), "others could put another file in its place");
        set(dir.path(), 0o700);
        assert!(trusted(Path::new("plugin.py")).is_err() && trusted(dir.path()).is_err());
    }
}
