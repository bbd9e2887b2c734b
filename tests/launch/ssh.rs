//! A host that is reachable only by ssh.

use std::{fs, process::Command};

use serde_json::Value;
use xpu_tests::{
    built,
    place::Place,
    port::free_base,
    program::{Program, run, until},
    skip::skipped,
};

use crate::{TRAINS, free_port, lacks, running};

/// An sshd of this user, which accepts this user's key, on a separate port.
struct Sshd {
    dir: tempfile::TempDir,
    daemon: Program,
}

impl Sshd {
    fn start() -> Option<Self> {
        if lacks(&["/usr/sbin/sshd", "ssh", "ssh-keygen"], "openssh-server openssh-client") {
            return None;
        }
        let dir = tempfile::Builder::new().prefix("xpu-top-ssh-").tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        for name in ["host", "user"] {
            let made =
                run(Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)]));
            assert!(made.status.success(), "{made:?}");
        }
        fs::copy(at("user.pub"), at("authorized")).unwrap();
        let port = free_port();
        let pid = at("pid");
        let mut lines = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile {pid}\n",
            at("host"),
            at("authorized"),
        );
        lines +=
            "PasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\nPermitRootLogin yes\n";
        fs::write(at("sshd"), lines).unwrap();
        let lines = format!(
            "Host far\n  HostName 127.0.0.1\n  Port {port}\n  IdentityFile {}\n  IdentitiesOnly yes\n  StrictHostKeyChecking no\n  \
             UserKnownHostsFile /dev/null\n  LogLevel ERROR\n",
            at("user"),
        );
        fs::write(at("config"), lines).unwrap();
        // sshd's directory for privilege separation. Only root's sshd needs it, and only root can make it.
        let _ = fs::create_dir("/run/sshd");
        let daemon = Program::start(Command::new("/usr/sbin/sshd").args(["-D", "-e", "-f", &at("sshd")]));
        let this = Self { dir, daemon };
        let through = until("sshd to let us in, or not", || {
            if run(this.command().args(["far", "true"])).status.success() {
                return Some(true);
            }
            this.daemon.said().contains("fatal").then_some(false)
        });
        if !through {
            skipped(&format!("sshd does not run here: {}", this.daemon.said()));
        }
        through.then_some(this)
    }

    fn config(&self) -> String {
        self.dir.path().join("config").display().to_string()
    }

    fn command(&self) -> Command {
        let mut command = Command::new("ssh");
        command.args(["-F", &self.config(), "-o", "BatchMode=yes"]);
        command
    }
}

/// A collector that only its own host can reach, and the rank of a job.
struct Closed {
    place: Place,
    base: u16,
    _programs: [Program; 2],
}

impl Closed {
    fn start() -> Self {
        let (place, base) = (Place::new(), free_base());
        let socket = place.path("run").join(format!("collector-{base}.sock"));
        let mut collector = place.command(built::artifact("xpu-collector"));
        collector.args(["--no-key", "--host-name", "sim", "--base-port", &base.to_string()]);
        let collector = Program::start(&mut collector);
        until("the collector to listen", || socket.exists().then_some(()));
        let mut rank = place.script(&format!("from gpu import *\n{TRAINS}"));
        rank.env("XPU_TOP_SOCKET", &socket)
            .env("XPU_TOP_JOB", "train")
            .envs([("RANK", "0"), ("WORLD_SIZE", "1")]);
        let rank = Program::start(&mut rank);
        Self { place, base, _programs: [collector, rank] }
    }

    fn xpu_top(&self, line: &str) -> Command {
        let mut command = self.place.command(built::artifact("xpu-top"));
        command.env("HOME", self.place.path("")).env_remove("XDG_CONFIG_HOME").args(line.split_whitespace());
        command
    }
}

#[test]
fn a_host_whose_ports_are_closed_is_reached_through_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let closed = Closed::start();
    let far = format!("far:{}", closed.base);
    // Only ssh knows this name.
    let direct = run(closed.xpu_top("status --json --now --hosts").arg(&far));
    assert_eq!(direct.status.code(), Some(3), "{direct:?}");
    let ssh = format!("--ssh=ssh -F {}", sshd.config());
    let status = until("the rank, through ssh", || {
        let said = run(closed.xpu_top("status --json --now --hosts").args([&far, &ssh]));
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        (status["ranks"][0]["step"] == 1).then_some(status)
    });
    assert_eq!((&status["job"], &status["ranks"][0]["host"]), (&"train".into(), &"sim".into()));
    let forwarded = format!("-control:127.0.0.1:{}", closed.base + 2);
    until("ssh to end with the program", || running(&forwarded, "ssh").is_empty().then_some(()));
    // The ssh connection also ends when the program is killed.
    let recorder =
        closed.xpu_top("record -o").arg(closed.place.path("r")).args(["--hosts", &far, &ssh]).spawn();
    let mut recorder = recorder.unwrap();
    until("ssh to run", || (!running(&forwarded, "ssh").is_empty()).then_some(()));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    until("ssh to end with a program that was killed", || {
        running(&forwarded, "ssh").is_empty().then_some(())
    });
    // ssh's own message about a rejected key is shown.
    fs::write(sshd.dir.path().join("authorized"), "").unwrap();
    let refused = run(closed.xpu_top("status --json --now --hosts").args([&far, &ssh]));
    assert!(
        refused.stderr.contains("ssh to far ended") && refused.stderr.contains("Permission denied"),
        "{refused:?}"
    );
    let left = fs::read_dir(closed.place.path("run")).unwrap().flatten();
    let left: Vec<_> = left
        .map(|entry| entry.file_name())
        .filter(|name| name.to_string_lossy().starts_with("ssh-"))
        .collect();
    // The socket of an ended program is removed by the next program.
    assert!(left.len() <= 1, "sockets are left behind: {left:?}");
}
