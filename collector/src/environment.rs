//! The environment that a process was started with.

use std::{fs::File, io::Read as _};

use xpu_wire::{
    endpoint::{user_id, variable},
    id::{JobName, Pid},
    process,
};

/// Bytes of an environment that are read.
const MOST: u64 = 1 << 20;

/// The variables of that environment, without later changes by the program.
#[derive(Debug)]
pub(crate) struct Environment(Vec<u8>);

impl Environment {
    /// `None` if `pid` is not a process of this job.
    pub(crate) fn of(pid: Pid, job: &JobName) -> Option<Self> {
        if process::owner(pid) != Some(user_id()) {
            return None;
        }
        let mut bytes = Vec::new();
        if let Ok(file) = File::open(format!("/proc/{pid}/environ")) {
            let _ = file.take(MOST).read_to_end(&mut bytes);
        }
        let environment = Self(bytes);
        // If the rank runs in another container, a different process may have its number here.
        let name = environment.value(variable::JOB);
        name.is_none_or(|name| JobName::cleaned(&name) == *job).then_some(environment)
    }

    pub(crate) fn value(&self, name: &str) -> Option<String> {
        let entries = self.0.split(|&byte| byte == 0);
        let mut values = entries.filter_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        values.next().map(|value| String::from_utf8_lossy(value).into_owned())
    }
}
