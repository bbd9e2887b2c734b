//! Launchers of ranks whose GPUs are read. A rank fails when its own are read, and then its launcher (torchrun)
//! ends the others, whose reading is not done: so it is stopped meanwhile.

use std::{collections::BTreeSet, fs};

use xpu_wire::{endpoint::variable, id::Pid};

#[derive(Debug, Default)]
pub(super) struct Launchers {
    stopped: BTreeSet<u32>,
}

impl Launchers {
    /// Stops the parent of a rank if it belongs to a job: never a user's shell, nor another rank.
    pub(super) fn stop(&mut self, rank: Pid, ranks: &[Pid]) {
        if let Some(parent) = parent(rank)
            && !ranks.contains(&Pid(parent))
            && belongs_to_a_job(parent)
            && self.stopped.insert(parent)
        {
            signal(parent, libc::SIGSTOP);
        }
    }

    pub(super) fn go_on(&mut self) {
        for launcher in std::mem::take(&mut self.stopped) {
            signal(launcher, libc::SIGCONT);
        }
    }
}

impl Drop for Launchers {
    fn drop(&mut self) {
        self.go_on();
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

fn signal(process: u32, number: i32) {
    // SAFETY: no memory is involved.
    unsafe { libc::kill(process as libc::pid_t, number) };
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader},
        process::{Child, Command, Stdio},
        time::{Duration, Instant},
    };

    use xpu_wire::process;

    use super::*;

    /// A parent with a child, whose number it prints.
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
        signal(rank.0, libc::SIGKILL);
        child.wait().unwrap();
    }

    #[test]
    fn a_launcher_is_stopped_until_all_are_read_and_a_shell_is_not() {
        let (mut torchrun, rank) = launcher(Some("train"));
        let (mut shell, alone) = launcher(None);
        let mut launchers = Launchers::default();
        launchers.stop(rank, &[rank]);
        launchers.stop(alone, &[alone]);
        assert_eq!(launchers.stopped, BTreeSet::from([torchrun.id()]));
        becomes(torchrun.id(), 'T');
        launchers.go_on();
        becomes(torchrun.id(), 'S');

        launchers.stop(rank, &[rank, Pid(torchrun.id())]);
        assert!(launchers.stopped.is_empty(), "it is a rank itself");
        launchers.stop(rank, &[rank]);
        drop(launchers);
        becomes(torchrun.id(), 'S');
        end(&mut torchrun, rank);
        end(&mut shell, alone);
    }
}
