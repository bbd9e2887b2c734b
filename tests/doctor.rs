//! `xpu-top doctor` on this machine: everything is ok with the stand-in libraries, failures are reported in
//! plain words, and the support bundle contains no secrets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs,
    net::{Ipv4Addr, TcpListener},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use serde_json::Value;
use xpu_tests::{
    built,
    place::Place,
    port::free_base,
    program::{Outcome, Program, run, until},
    torch,
};

fn doctor(place: &Place, base: u16, arguments: &[&str]) -> Outcome {
    let mut command = place.command(built::artifact("xpu-top"));
    command
        .env("HOME", place.path("home"))
        .env_remove("XDG_CONFIG_HOME")
        .env("XPU_TOP_BASE_PORT", base.to_string());
    run(command.arg("doctor").args(arguments))
}

fn check<'a>(document: &'a Value, name: &str) -> &'a Value {
    let all = document["checks"].as_array().unwrap();
    all.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no check {name}: {document}"))
}

#[test]
fn doctor_finds_no_problem_with_the_stand_ins() {
    let place = Place::new();
    let said = doctor(&place, free_base(), &["--json"]);
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    for name in
        ["preload", "collector", "cudart", "cublas", "nccl", "cupti", "runtime dir", "ports", "ledger"]
    {
        assert_eq!(check(&document, name)["state"], "ok", "{document}");
    }
    assert!(
        check(&document, "nccl")["found"].as_str().unwrap().contains("libnccl.so.2: collectives are seen"),
        "{document}"
    );
    assert!(check(&document, "preload")["found"].as_str().unwrap().contains("libxpu_hook.so"));
    // The text output has one line per check, and the remedy below it.
    let said = doctor(&place, free_base(), &[]);
    assert!(said.stdout.contains("ok    preload") && said.stdout.lines().count() > 12, "{}", said.stdout);
    assert_eq!(place.leftovers(), Vec::<std::path::PathBuf>::new());
}

#[test]
fn problems_are_reported_with_advice() {
    let place = Place::new();
    let key = place.path("key");
    fs::write(&key, "x").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let base = free_base();
    let _taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, base + 1)).unwrap();
    let said = doctor(&place, base, &["--json", "--key-file", key.to_str().unwrap()]);
    assert_eq!(said.status.code(), Some(1), "{said:?}");
    let document: Value = serde_json::from_str(&said.stdout).unwrap();
    assert_eq!(document["verdict"], "fail");
    let ports = check(&document, "ports");
    assert_eq!(ports["state"], "fail");
    assert!(ports["remedy"].as_str().unwrap().contains("--base-port"), "{ports}");
    assert!(ports["found"].as_str().unwrap().contains(&(base + 1).to_string()), "{ports}");
    assert_eq!(check(&document, "key")["state"], "fail");
    let unreachable = doctor(&place, base, &["--json", "--hosts", "no-such-host.invalid"]);
    let document: Value = serde_json::from_str(&unreachable.stdout).unwrap();
    assert!(
        check(&document, "host")["remedy"].as_str().unwrap().contains("no-such-host.invalid"),
        "{document}"
    );
}

#[test]
fn a_packed_report_holds_no_secret() {
    let place = Place::new();
    let key = place.path("home/.config/xpu-top/key");
    let mut keygen = place.command(built::artifact("xpu-top"));
    assert!(run(keygen.args(["keygen", "-o"]).arg(&key)).status.success());
    let secret = fs::read_to_string(&key).unwrap().trim().to_owned();
    let (public_half, secret_half) = secret.split_at(40);
    // The log contains everything that must not get out.
    let base = free_base();
    let home = place.path("home").display().to_string();
    let log = format!("key {secret} token wandb-1234567 at {home}/train.py of marie\n");
    fs::write(place.path("run").join(format!("collector-{base}.log")), log).unwrap();
    let bundle = place.path("bundle.tar.gz");
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", &home).env_remove("XDG_CONFIG_HOME").env("XPU_TOP_BASE_PORT", base.to_string());
    command.env("USER", "marie").env("WANDB_API_KEY", "wandb-1234567").env("NCCL_DEBUG", "INFO");
    let said = run(command.arg("doctor").arg("--bundle").arg(&bundle));
    assert_eq!(said.status.code(), Some(0), "{said:?}");
    assert_eq!(fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    let unpacked = place.path("unpacked");
    fs::create_dir(&unpacked).unwrap();
    assert!(run(Command::new("tar").arg("-xzf").arg(&bundle).arg("-C").arg(&unpacked)).status.success());
    let grep = |what: &str| run(Command::new("grep").args(["-rF", what]).arg(&unpacked));
    for secret in [public_half, secret_half, "wandb-1234567", &home, "marie"] {
        assert_eq!(grep(secret).stdout, "", "{secret} is in there");
    }
    assert!(grep("NCCL_DEBUG=INFO").status.success(), "what helps is there");
    assert!(grep("key [key] token [secret] at ~/train.py of [user]").status.success());
    assert!(grep("\"verdict\"").status.success());
    // An existing file is not overwritten.
    let again = run(command.env("X", "y"));
    assert!(again.stderr.contains("does not exist yet") && again.status.code() == Some(1), "{again:?}");
}

/// This collector has another runtime directory, as a demo's has, so `run` does not find it.
#[test]
fn another_collector_of_the_same_user_is_no_failure() {
    let place = Place::new();
    let base = free_base();
    let other = place.path("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    let mut command = place.command(built::artifact("xpu-collector"));
    command.args(["--no-key", "--base-port", &base.to_string(), "--runtime-dir"]).arg(&other);
    let mut collector = Program::start(&mut command);
    let ports = until("it to listen", || {
        assert!(collector.is_running(), "{}", collector.said());
        let said = doctor(&place, base, &["--json"]);
        let document: Value = serde_json::from_str(&said.stdout).unwrap();
        let ports = check(&document, "ports").clone();
        (ports["state"] != "ok").then_some((said.status.code(), ports))
    });
    let found = format!("another collector of yours (process {}) listens on ", collector.pid());
    assert!(ports.1["found"].as_str().unwrap().starts_with(&found), "{ports:?}");
    assert_eq!((ports.0, &ports.1["state"]), (Some(0), &"warn".into()));
}

#[test]
fn a_collector_with_another_key_is_no_failure() {
    let place = Place::new();
    let base = free_base();
    let key = place.path("another.key");
    assert!(run(place.command(built::artifact("xpu-top")).args(["keygen", "-o"]).arg(&key)).status.success());
    let mut command = place.command(built::artifact("xpu-collector"));
    command.args(["--base-port", &base.to_string(), "--key-file"]).arg(&key);
    let mut collector = Program::start(&mut command);
    let (code, document) = until("it to listen", || {
        assert!(collector.is_running(), "{}", collector.said());
        let said = doctor(&place, base, &["--json"]);
        let document: Value = serde_json::from_str(&said.stdout).unwrap();
        check(&document, "host")["found"]
            .as_str()?
            .contains("does not answer")
            .then_some((said.status.code(), document))
    });
    assert_eq!((code, &check(&document, "ports")["state"]), (Some(0), &"ok".into()), "{document:#}");
    assert!(check(&document, "host").to_string().contains("its key differs"), "{document:#}");
}

/// `xpu-top run` with these arguments, and the check that names its program, once it says `says`.
fn started(set: &[(&str, &str)], arguments: &[&str], says: &str) -> Value {
    let (place, base) = (Place::new(), free_base());
    let mut command = place.command(built::artifact("xpu-top"));
    command
        .env("HOME", place.path("home"))
        .env_remove("XDG_CONFIG_HOME")
        .env_remove("LD_LIBRARY_PATH")
        .env("XPU_TOP_BASE_PORT", base.to_string())
        .envs(set.iter().copied())
        .args(["run", "--no-collector"])
        .args(arguments);
    let _program = Program::start(&mut command);
    until(says, || {
        let document: Value = serde_json::from_str(&doctor(&place, base, &["--json"]).stdout).ok()?;
        let all = document["checks"].as_array()?;
        let found = all.iter().find(|check| check["name"] == "started")?;
        found["found"].as_str()?.contains(says).then(|| found.clone())
    })
}

/// A program under `xpu-top run` that calls no CUDA and marks no step.
#[test]
fn a_started_program_without_a_rank_is_named_with_the_reason() {
    let says = "of job inference has no rank: no call of CUDA or NCCL and no mark";
    let found = started(&[], &["--job", "inference", "--", "sh", "-c", "sleep 60; true"], says);
    assert!(
        found["state"] == "warn" && found["remedy"].as_str().unwrap().contains("tracer.step()"),
        "{found}"
    );
}

/// Rank 1 and its host are not started.
#[test]
fn programs_in_a_rendezvous_of_pytorch_are_named() {
    let (Some(python), Some(torchrun)) = (torch::program("python"), torch::program("torchrun")) else {
        return;
    };
    let [python, torchrun] = [&python, &torchrun].map(|program| program.to_str().unwrap());
    let waits = "import torch.distributed as dist; dist.init_process_group('gloo')";
    let set = [("RANK", "0"), ("WORLD_SIZE", "2"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", "0")];
    let found =
        started(&set, &["--", python, "-c", waits], " (rank 0 of 2) waits for others in init_process_group");
    assert!(found["remedy"].as_str().unwrap().contains("MASTER_ADDR"), "{found}");
    let arguments = [
        "--",
        torchrun,
        "--nnodes",
        "2",
        "--rdzv-backend",
        "c10d",
        "--rdzv-endpoint",
        "127.0.0.1:0",
        "train.py",
    ];
    started(&[], &arguments, " waits for others in torchrun's rendezvous");
}
