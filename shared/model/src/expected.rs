//! Processes that may become ranks. `xpu-top run` leaves a file for each in the runtime directory, named by
//! its process id, which the program keeps. A collector that starts after a slowly loading job therefore
//! still waits for it.

use std::{
    fs,
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use xpu_wire::{
    endpoint::{BasePort, RuntimeDir},
    id::{JobName, Pid},
    process::Process,
};

/// Files read; a host starts tens.
const MOST: usize = 4096;

/// Longest file that is read: two numbers and two names.
const LONGEST: u64 = 4096;

/// One started process that will be monitored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expected {
    pub pid: Pid,
    pub job: JobName,
    /// Its launcher's rank; a launcher itself has none.
    pub rank: Option<String>,
}

/// Announces a process to the present or later collector with this base port.
pub fn announce(runtime: &RuntimeDir, base: BasePort, expected: &Expected) -> io::Result<()> {
    let Process::Here { started, .. } = Process::find(expected.pid) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let dir = directory(runtime, base);
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let rank = expected.rank.as_deref().unwrap_or_default();
    // Written to a temporary file first: from half a file, a reader would conclude that the process is gone.
    let aside = dir.join(format!("{}.new", expected.pid));
    fs::write(&aside, format!("{started}\n{}\n{rank}\n", expected.job))?;
    fs::rename(aside, dir.join(expected.pid.to_string()))
}

/// The living processes. The files of others are removed.
pub fn living(runtime: &RuntimeDir, base: BasePort) -> Vec<Expected> {
    let found = fs::read_dir(directory(runtime, base)).into_iter().flatten().flatten().take(MOST);
    let mut living = Vec::new();
    for file in found {
        let Some(pid) = file.file_name().to_str().and_then(|name| name.parse().ok()).map(Pid) else {
            continue;
        };
        let text = read(&file.path()).unwrap_or_default();
        match parse(pid, &text) {
            Some((process, expected)) if process.lives() == Some(true) => living.push(expected),
            _ => drop(fs::remove_file(file.path())),
        }
    }
    living
}

/// Reads a file; does not block if a pipe is in its place.
fn read(path: &Path) -> io::Result<String> {
    let file =
        fs::OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK | libc::O_NOFOLLOW).open(path)?;
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text)?;
    Ok(text)
}

fn parse(pid: Pid, text: &str) -> Option<(Process, Expected)> {
    let mut lines = text.lines();
    let started = lines.next()?.parse().ok()?;
    let job = JobName::cleaned(lines.next()?);
    let rank = lines.next().filter(|rank| !rank.is_empty()).map(str::to_owned);
    Some((Process::Here { pid, started }, Expected { pid, job, rank }))
}

fn directory(runtime: &RuntimeDir, base: BasePort) -> PathBuf {
    runtime.path().join(format!("expected-{}", base.0))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, id};

    use super::*;

    #[test]
    fn a_process_is_expected_for_as_long_as_it_lives() {
        let runtime = RuntimeDir::at(std::env::temp_dir().join(format!("xpu-top-expected-{}", id())));
        let base = BasePort::DEFAULT;
        runtime.prepare().unwrap();
        assert_eq!(living(&runtime, base), []);
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let expected = |pid, rank: Option<&str>| Expected {
            pid: Pid(pid),
            job: "j".into(),
            rank: rank.map(str::to_owned),
        };
        announce(&runtime, base, &expected(id(), None)).unwrap();
        announce(&runtime, base, &expected(child.id(), Some("3"))).unwrap();
        // Another process under a reused pid, and an invalid file.
        fs::write(directory(&runtime, base).join("1"), "12\nj\n\n").unwrap();
        fs::write(directory(&runtime, base).join("2"), "\u{1b}").unwrap();
        let mut found = living(&runtime, base);
        found.sort_by_key(|expected| expected.rank.clone());
        assert_eq!(found, [expected(id(), None), expected(child.id(), Some("3"))]);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(living(&runtime, base), [expected(id(), None)]);
        assert_eq!(fs::read_dir(directory(&runtime, base)).unwrap().count(), 1);
        fs::remove_dir_all(runtime.path()).unwrap();
    }
}
