//! How jobs are started and reached: launchers' variables, Slurm, ssh, a name with several addresses. Uses
//! the real programs that this machine has, and reports the missing ones.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod plugin;
mod slurm;
mod ssh;

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::Value;
use xpu_tests::{
    built,
    host::Host,
    program::{Program, run, until},
    skip::{Beyond, skipped, skipped_beyond_ci},
};

const TRAINS: &str = "
ok(gemm_ex(256, 256, 256))
sync()
step()
hold()
";

/// The variables that each launcher sets for the second of four ranks. The first of two hosts has two ranks.
const LAUNCHERS: [(&str, &[(&str, &str)]); 8] = [
    // accelerate and deepspeed set the same variables.
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
    (
        "mpirun of Open MPI in a shell of Slurm",
        &[
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "1"),
            ("SLURM_LOCALID", "0"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
        ],
    ),
    ("flux run", &[("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "4"), ("FLUX_TASK_LOCAL_ID", "1")]),
    ("mpiexec of MPICH", &[("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("MPI_LOCALRANKID", "1")]),
    (
        "mpirun of MVAPICH",
        &[("MV2_COMM_WORLD_RANK", "1"), ("MV2_COMM_WORLD_SIZE", "4"), ("MV2_COMM_WORLD_LOCAL_RANK", "1")],
    ),
];

#[test]
fn the_rank_is_read_from_every_launcher() {
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

/// Two jobs on a host at the same time stay separate.
#[test]
fn two_jobs_of_one_host_are_separate() {
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

/// `true` if a program is missing, which is reported as a skip.
fn lacks(programs: &[&str], package: &str) -> bool {
    let missing: Vec<_> = programs.iter().filter(|program| !has(program)).collect();
    if !missing.is_empty() {
        skipped(&format!("no {missing:?} here (apt-get install {package})"));
    }
    !missing.is_empty()
}

/// The processes of `program` with `what` in their command line.
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

/// A name with the addresses of two hosts, as a headless service has.
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
fn core_dumps_of_gpus_are_prepared_unless_already_configured() {
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
        words.len() == 4 && (words[0], words[3]) == ("1", "1") && words[1].ends_with("/gpu/gpu-pipe.%p"),
        "{prepared:?}"
    );
    assert!(words[2].contains("skip_global_memory,") && !words[2].contains("skip_abort"), "{prepared:?}");
    let unasked = shown_with("--gpu-core-on-hang", &[]);
    assert!(unasked.stdout.ends_with("skip_constbank_memory 1 on-hang\n"), "{unasked:?}");
    assert_eq!(shown_with("--gpu-core-on-exception --gpu-core", &[]).stdout, prepared.stdout);
    assert_eq!(shown_with("--gpu-core-on-hang --gpu-core-on-exception", &[]).stdout, unasked.stdout);
    let others = shown(&[("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "0")]);
    assert_eq!(others.stdout, "0\n", "{others:?}");
    assert!(others.stderr.contains("CUDA_ENABLE_USER_TRIGGERED_COREDUMP is set already"), "{others:?}");
}
