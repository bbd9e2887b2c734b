//! How jobs are started and reached: launchers' variables, Slurm, ssh, a name with several addresses. With
//! the real ones, if this machine has them; missing ones are reported.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use xpu_tests::{
    built,
    host::Host,
    place::Place,
    port::free_base,
    program::{Program, run, until},
    skip::{Beyond, skipped, skipped_beyond_ci},
};

const TRAINS: &str = "
ok(gemm_ex(256, 256, 256))
sync()
step()
hold()
";

/// What each launcher sets for the second of four ranks, the first of its two hosts having two.
const LAUNCHERS: [(&str, &[(&str, &str)]); 6] = [
    // accelerate and deepspeed set the same.
    ("torchrun", &[("RANK", "1"), ("WORLD_SIZE", "4"), ("LOCAL_RANK", "1"), ("LOCAL_WORLD_SIZE", "2")]),
    ("srun", &[("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4"), ("SLURM_LOCALID", "1"), ("SLURM_JOB_ID", "7")]),
    (
        "srun and torchrun",
        &[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
            ("RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
        ],
    ),
    (
        "mpirun of Open MPI",
        &[
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("PMIX_RANK", "1"),
        ],
    ),
    ("mpiexec of MPICH", &[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1")]),
    (
        "mpirun of MVAPICH",
        &[("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "4"), ("MV2_COMM_WORLD_LOCAL_RANK", "1")],
    ),
];

#[test]
fn every_launcher_says_which_rank_it_is() {
    let host = Host::new();
    for (number, (launcher, set)) in LAUNCHERS.into_iter().enumerate() {
        let job = format!("job{number}");
        let mut command = host.place.script(&format!("from gpu import *\n{TRAINS}"));
        command.env("XPU_TOP_SOCKET", host.socket()).env("XPU_TOP_JOB", &job).envs(set.iter().copied());
        let rank = Program::start(&mut command);
        let seen = until(launcher, || {
            let said = host.ask(&format!("status --json --now --job {job}"));
            let status: Value = serde_json::from_str(&said.stdout).ok()?;
            (status["ranks"][0]["step"] == 1).then_some(status)
        });
        assert_eq!((&seen["ranks"][0]["rank"], &seen["world_size"]), (&1.into(), &4.into()), "{launcher}");
        assert!(rank.end().status.success());
    }
}

/// Two jobs of a host at once are two jobs.
#[test]
fn jobs_of_one_host_are_apart() {
    let host = Host::new();
    let start = |job: &str| {
        let mut command = host.place.script(&format!("from gpu import *\n{TRAINS}"));
        command
            .env("XPU_TOP_SOCKET", host.socket())
            .env("XPU_TOP_JOB", job)
            .envs([("RANK", "0"), ("WORLD_SIZE", "1")]);
        Program::start(&mut command)
    };
    let both = [start("one"), start("other")];
    for (job, other) in [("one", "other"), ("other", "one")] {
        until("each to be there", || {
            let said = host.ask(&format!("status --json --now --job {job}"));
            let status: Value = serde_json::from_str(&said.stdout).ok()?;
            (status["ranks"][0]["step"] == 1 && status["other_jobs"] == serde_json::json!([other]))
                .then_some(())
        });
    }
    for program in both {
        assert!(program.end().status.success());
    }
}

fn free_port() -> u16 {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port()
}

fn has(program: &str) -> bool {
    let looked =
        Command::new("sh").args(["-c", &format!("command -v {program}")]).stdout(Stdio::null()).status();
    looked.is_ok_and(|found| found.success())
}

/// `true` if something is missing, which is reported.
fn lacks(programs: &[&str], package: &str) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !has(program)).collect();
    if !missing.is_empty() {
        skipped(&format!("no {missing:?} here (apt-get install {package})"));
    }
    !missing.is_empty()
}

/// sshd of this user, which lets this user in with a key, on a port of its own.
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
        // What sshd separates privileges in; only root's needs it, and only root can make it.
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

/// Processes with this in their command line.
fn running(what: &str, program: &str) -> Vec<PathBuf> {
    let all = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let line = |path: &PathBuf| {
        fs::read(path.join("cmdline")).map(|bytes| String::from_utf8_lossy(&bytes).replace('\0', " "))
    };
    all.filter(|path| {
        line(path).is_ok_and(|line| {
            line.split(' ').next().is_some_and(|first| first.ends_with(program)) && line.contains(what)
        })
    })
    .collect()
}

#[test]
fn a_host_whose_ports_are_closed_is_reached_through_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let closed = Closed::start();
    let far = format!("far:{}", closed.base);
    // Nobody but ssh knows this name.
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
    // It ends with a program that is killed too.
    let recorder =
        closed.xpu_top("record -o").arg(closed.place.path("r")).args(["--hosts", &far, &ssh]).spawn();
    let mut recorder = recorder.unwrap();
    until("ssh to run", || (!running(&forwarded, "ssh").is_empty()).then_some(()));
    recorder.kill().unwrap();
    recorder.wait().unwrap();
    until("ssh to end with a program that was killed", || {
        running(&forwarded, "ssh").is_empty().then_some(())
    });
    // A rejected key is reported in ssh's own words.
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
    // The one of an ended program is removed with the next one.
    assert!(left.len() <= 1, "sockets are left behind: {left:?}");
}

/// munge, a controller and a node daemon of Slurm's, in a folder of their own.
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
        // Steps are children of a process that slurmd starts, which ends when they have.
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
    let ended = until("the end to be told", || {
        let said = ask(&format!("status --json --now --hosts {}", slurm.host));
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        status["ranks"][0]["exit"]["signal"].is_string().then_some(status)
    });
    assert_eq!(ended["ranks"][0]["exit"]["signal"], "SIGTERM", "{ended}");
    // `run` made it nobody's child.
    for collector in running(&format!("--base-port={base} "), "xpu-collector") {
        run(Command::new("kill").arg(collector.file_name().unwrap()));
    }
    drop(job);
}

/// A name that stands for two hosts, as that of a headless service does.
#[test]
fn all_addresses_of_a_services_name_are_watched() {
    let hosts = [Host::new()];
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("hosts");
    fs::write(
        &file,
        format!("127.0.0.1 localhost\n{} train.sim\n127.90.255.253 train.sim\n", hosts[0].address),
    )
    .unwrap();
    let rank = hosts[0].rank_of(0, 1, TRAINS);
    let line = format!(
        "mount --bind {} /etc/hosts && exec {} status --json --now --k8s-service train.sim --base-port {} --key-file {}",
        file.display(),
        built::artifact("xpu-top").display(),
        xpu_tests::host::BASE,
        hosts[0].key().display(),
    );
    let mut looked = Command::new("unshare");
    looked.args(["--mount", "sh", "-c", &line]);
    let first = run(&mut looked);
    if first.stderr.contains("unshare") || first.stderr.contains("mount") {
        skipped_beyond_ci(Beyond::MountNamespaces, &first.stderr);
        return;
    }
    let status = until("the rank behind the name", || {
        let said = run(&mut looked);
        let status: Value = serde_json::from_str(&said.stdout).ok()?;
        (status["ranks"][0]["step"] == 1).then_some(status)
    });
    let unreachable = status["coverage"]["hosts_unreachable"].as_array().unwrap();
    assert!(
        unreachable.len() == 1 && unreachable[0]["host"].as_str().unwrap().starts_with("127.90.255.253"),
        "{status}"
    );
    assert!(rank.end().status.success());
}

#[test]
fn core_dumps_of_gpus_are_prepared_unless_somebody_else_did() {
    let host = Host::new();
    let shown_with = |option: &str, set: &[(&str, &str)]| {
        let mut command = host.xpu_top(&format!("run --no-collector {option} -- sh -c"));
        command.arg(
            "echo $CUDA_ENABLE_USER_TRIGGERED_COREDUMP $CUDA_COREDUMP_PIPE $CUDA_COREDUMP_GENERATION_FLAGS $CUDA_ENABLE_COREDUMP_ON_EXCEPTION $XPU_TOP_GPU_CORE",
        );
        run(command.envs(set.iter().copied()))
    };
    let shown = |set: &[(&str, &str)]| shown_with("--gpu-core", set);
    let prepared = shown(&[]);
    let words: Vec<_> = prepared.stdout.split_whitespace().collect();
    assert!(
        words.len() == 4 && (words[0], words[3]) == ("1", "0") && words[1].ends_with("/gpu/gpu-pipe.%p"),
        "{prepared:?}"
    );
    assert!(words[2].contains("skip_global_memory,") && words[2].ends_with(",skip_abort"), "{prepared:?}");
    let unasked = shown_with("--gpu-core-on-hang", &[]);
    assert!(unasked.stdout.ends_with("skip_abort 0 on-hang\n"), "{unasked:?}");
    let at_exceptions = shown_with("--gpu-core-on-exception", &[]);
    assert!(at_exceptions.stdout.ends_with("skip_constbank_memory 1\n"), "{at_exceptions:?}");
    let others = shown(&[("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "0")]);
    assert_eq!(others.stdout, "0\n", "{others:?}");
    assert!(others.stderr.contains("CUDA_ENABLE_USER_TRIGGERED_COREDUMP is set already"), "{others:?}");
}
