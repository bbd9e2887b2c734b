use std::{
    collections::BTreeMap,
    fs,
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
};

use xpu_wire::{endpoint::variable, id::Pid};

/// The launcher of a rank, if it may be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Launcher(Option<u32>);

impl Launcher {
    /// The rank's parent, if it belongs to a job: never a user's shell or another rank.
    pub(crate) fn of(rank: Pid, ranks: &[Pid]) -> Self {
        Self(parent(rank).filter(|&parent| !ranks.contains(&Pid(parent)) && belongs_to_a_job(parent)))
    }
}

/// Stops the process given as its parameter until standard input ends. This also happens if the collector is
/// killed.
const STOPS: &str = "kill -STOP $0; read -r _; kill -CONT $0";

#[derive(Debug, Default)]
pub(super) struct Launchers {
    /// For each stopped launcher, the process that keeps it stopped.
    stopped: BTreeMap<u32, Child>,
    /// Processes that resumed their launcher, and are not reaped yet.
    ending: Vec<Child>,
}

impl Launchers {
    pub(super) fn stop(&mut self, launcher: Launcher) {
        self.ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let Launcher(Some(launcher)) = launcher else { return };
        if self.stopped.contains_key(&launcher) {
            return;
        }
        let mut command = Command::new("/bin/sh");
        command.args(["-c", STOPS, &launcher.to_string()]).env_remove("LD_PRELOAD");
        // The process has a group of its own, so that Ctrl-C of the collector does not end it first.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
        match command.spawn() {
            Ok(child) => drop(self.stopped.insert(launcher, child)),
            Err(error) => {
                tracing::warn!("the launcher {launcher} may end ranks whose GPUs are read: {error}");
            }
        }
    }

    pub(super) fn go_on(&mut self) {
        for mut child in std::mem::take(&mut self.stopped).into_values() {
            drop(child.stdin.take());
            self.ending.push(child);
        }
        self.ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }
}

fn parent(process: Pid) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The name in parentheses may contain anything.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok().filter(|&parent| parent > 1)
}

fn belongs_to_a_job(process: u32) -> bool {
    let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    let job = format!("{}=", variable::JOB);
    environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(job.as_bytes()))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        time::{Duration, Instant},
    };

    use xpu_wire::process;

    use super::*;

    /// A parent that prints the process id of its child.
    fn launcher(job: Option<&str>) -> (Child, Pid) {
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $!; wait"]).env_remove(variable::JOB).stdout(Stdio::piped());
        let mut child = command.envs(job.map(|job| (variable::JOB, job))).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        (child, Pid(line.trim().parse().unwrap()))
    }

    fn becomes(process: u32, letter: char) {
        let until = Instant::now() + Duration::from_secs(10);
        while process::state(Pid(process)) != Some(letter) {
            assert!(Instant::now() < until, "{:?}, not {letter}", process::state(Pid(process)));
            std::thread::yield_now();
        }
    }

    fn end(child: &mut Child, rank: Pid) {
        // SAFETY: kill touches no memory.
        unsafe { libc::kill(rank.0 as libc::pid_t, libc::SIGKILL) };
        child.wait().unwrap();
    }

    #[test]
    fn a_launcher_is_stopped_until_all_are_read_and_a_shell_is_not() {
        let (mut torchrun, rank) = launcher(Some("train"));
        let (mut shell, alone) = launcher(None);
        let mut launchers = Launchers::default();
        assert_eq!(Launcher::of(alone, &[alone]), Launcher(None));
        let of_the_job = Launcher::of(rank, &[rank]);
        assert_eq!(of_the_job, Launcher(Some(torchrun.id())));
        assert_eq!(Launcher::of(rank, &[rank, Pid(torchrun.id())]), Launcher(None), "it is a rank itself");

        launchers.stop(of_the_job);
        launchers.stop(of_the_job);
        becomes(torchrun.id(), 'T');
        launchers.go_on();
        becomes(torchrun.id(), 'S');

        // Simulates a killed collector: its end of the pipe is closed.
        launchers.stop(of_the_job);
        becomes(torchrun.id(), 'T');
        drop(launchers);
        becomes(torchrun.id(), 'S');
        end(&mut torchrun, rank);
        end(&mut shell, alone);
    }
}
