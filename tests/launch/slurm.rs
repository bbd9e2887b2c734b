//! A job under Slurm, watched by its job id.

use std::{fs, os::unix::fs::PermissionsExt as _, path::PathBuf, process::Command};

use serde_json::Value;
use xpu_tests::{
    built,
    place::Place,
    port::free_base,
    program::{Program, run, until},
    skip::skipped,
};

use crate::{TRAINS, free_port, lacks, running};

/// munge, a controller and a node daemon of Slurm, in a separate folder.
struct Slurm {
    dir: tempfile::TempDir,
    host: String,
    daemons: Vec<Program>,
}

impl Slurm {
    fn start() -> Option<Self> {
        if lacks(
            &["/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd", "srun", "squeue"],
            "slurm-wlm munge",
        ) {
            return None;
        }
        if !run(Command::new("id").arg("-u")).stdout.trim().eq("0") {
            skipped("Slurm's node daemon wants to be root");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("xpu-top-slurm-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let host = run(Command::new("hostname").arg("-s")).stdout.trim().to_owned();
        for name in ["state", "spool"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("key"), [7; 128]).unwrap();
        fs::set_permissions(at("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let (controller, node) = (free_port(), free_port());
        let conf = format!(
            "ClusterName=sim\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nAuthType=auth/munge\nAuthInfo=socket={}\n\
             CredType=cred/munge\nSlurmctldPort={controller}\nSlurmdPort={node}\nStateSaveLocation={}\nSlurmdSpoolDir={}\n\
             SlurmctldPidFile={}\nSlurmdPidFile={}\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n\
             ReturnToService=2\nJobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\nSwitchType=switch/none\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN\nPartitionName=all Nodes={host} Default=YES State=UP OverSubscribe=FORCE:8\n",
            at("munge"),
            at("state"),
            at("spool"),
            at("ctld.pid"),
            at("slurmd.pid"),
        );
        fs::write(at("slurm.conf"), conf).unwrap();
        let munged = Program::start(Command::new("/usr/sbin/munged").args([
            "--foreground".to_owned(),
            "--force".to_owned(),
            format!("--key-file={}", at("key")),
            format!("--socket={}", at("munge")),
            format!("--pid-file={}", at("munge.pid")),
            format!("--seed-file={}", at("seed")),
            format!("--log-file={}", at("munge.log")),
        ]));
        let mut this = Self { host, daemons: vec![munged], dir };
        until("munge", || this.at("munge").exists().then_some(()));
        for daemon in ["slurmctld", "slurmd"] {
            let mut command = this.command(&format!("/usr/sbin/{daemon}"));
            let log = this.at(daemon).display().to_string();
            this.daemons.push(Program::start(command.args(["-D", "-L", &log])));
        }
        let up = until("the node to be idle, or a daemon to end", || {
            if this.daemons.iter_mut().any(|daemon| !daemon.is_running()) {
                return Some(false);
            }
            let state = run(this.command("sinfo").args(["-h", "-o", "%T"]));
            (state.stdout.trim() == "idle").then_some(true)
        });
        if !up {
            let logs: Vec<_> = ["slurmctld", "slurmd"]
                .iter()
                .map(|name| fs::read_to_string(this.at(name)).unwrap_or_default())
                .collect();
            skipped(&format!("Slurm does not run here: {logs:?}"));
        }
        up.then_some(this)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.at("slurm.conf"));
        command
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        let _ = self.command("scancel").args(["--user", "root", "--signal=KILL"]).status();
        // Job steps run under a process of slurmd, which ends after them.
        for _ in 0..100 {
            let left = run(self.command("squeue").arg("-h"));
            if left.stdout.trim().is_empty() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(50));
        }
        while let Some(daemon) = self.daemons.pop() {
            daemon.signal("TERM");
            drop(daemon);
        }
    }
}

#[test]
fn a_job_of_slurm_is_watched_by_its_number() {
    let Some(slurm) = Slurm::start() else { return };
    let (place, base) = (Place::new(), free_base());
    let script = format!("from gpu import *\n{TRAINS}");
    let mut srun = place.command("srun");
    srun.env("SLURM_CONF", slurm.at("slurm.conf"))
        .env("HOME", place.path(""))
        .env("PYTHONPATH", built::source("hook"))
        .env("RENDEZVOUS", place.path(""))
        .env("XPU_TOP_BASE_PORT", base.to_string())
        .env_remove("XPU_TOP_SOCKET")
        .args(["--ntasks=2", "--overcommit", "--input=none", "--chdir=/tmp"])
        .arg(built::artifact("xpu-top"))
        .args(["run", "--", "python3", "-c", &script.replace("hold()", "time.sleep(600)")]);
    let job = Program::start(&mut srun);
    let id = until("the job to run", || {
        let listed = run(slurm.command("squeue").args(["-h", "-o", "%i %T"]));
        Some(listed.stdout.trim().strip_suffix(" RUNNING")?.to_owned())
    });
    let ask = |line: &str| {
        let mut command = place.command(built::artifact("xpu-top"));
        command
            .env("HOME", place.path(""))
            .env("SLURM_CONF", slurm.at("slurm.conf"))
            .env("XPU_TOP_BASE_PORT", base.to_string());
        run(command.args(line.split_whitespace()))
    };
    let status = until("both ranks, by the number of the job", || {
        let said = ask(&format!("status --json --now --slurm-job {id}"));
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        (status["ranks"][1]["step"] == 1 && status["ranks"][0]["step"] == 1).then_some(status)
    });
    assert_eq!(
        (&status["job"], &status["world_size"]),
        (&format!("slurm-{id}").into(), &2.into()),
        "{} {status}",
        job.said()
    );
    assert_eq!(status["ranks"][0]["host"].as_str(), Some(slurm.host.as_str()));
    let unknown = ask("status --slurm-job 99999 --now");
    assert!(unknown.stderr.contains("squeue") && unknown.stderr.contains("99999"), "{unknown:?}");
    assert_eq!(unknown.status.code(), Some(64));
    // scancel ends all ranks by SIGTERM, which is reported.
    assert!(run(slurm.command("scancel").arg(&id)).status.success());
    let ended = until("the report of the end", || {
        let said = ask(&format!("status --json --now --hosts {}", slurm.host));
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        status["ranks"][0]["exit"]["signal"].is_string().then_some(status)
    });
    assert_eq!(ended["ranks"][0]["exit"]["signal"], "SIGTERM", "{ended}");
    // `run` detached the collector from its parent.
    for collector in running(&format!("--base-port={base} "), "xpu-collector") {
        run(Command::new("kill").arg(collector.file_name().unwrap()));
    }
    drop(job);
}
