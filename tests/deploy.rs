//! `deploy/` matches the programs: every flag that it uses exists, and systemd accepts every unit.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use xpu_tests::{
    built,
    skip::{Beyond, skipped_beyond_ci},
};

/// The subcommands that `deploy/` uses.
const SUBCOMMANDS: [&str; 3] = ["run", "doctor", "keygen"];

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(files(&path)),
            path => all.push(path),
        }
    }
    all
}

fn help(program: &str, arguments: &[&str]) -> String {
    let said = Command::new(built::artifact(program)).args(arguments).arg("--help").output().unwrap();
    String::from_utf8(said.stdout).unwrap()
}

/// The flags of xpu-top's programs on a line, up to a `--`, after which another program's command begins.
fn flags(line: &str) -> Vec<(&'static str, String)> {
    let line = line.replace(['[', ']', ',', '"', '(', ')', '`'], " ");
    let (mut of, mut found) = (None, Vec::new());
    for word in line.split_whitespace() {
        match word.rsplit('/').next().unwrap_or_default() {
            "xpu-top" => of = Some("xpu-top"),
            "xpu-collector" => of = Some("xpu-collector"),
            "--" => of = None,
            _ => {}
        }
        if let (Some(of), Some(flag)) = (of, word.strip_prefix("--").filter(|flag| !flag.is_empty())) {
            found.push((of, flag.split('=').next().unwrap_or_default().to_owned()));
        }
    }
    found
}

#[test]
fn every_documented_flag_exists() {
    let tui: String =
        SUBCOMMANDS.iter().map(|one| help("xpu-top", &[one])).chain([help("xpu-top", &[])]).collect();
    let collector = help("xpu-collector", &[]);
    let mut seen = BTreeSet::new();
    for path in files(&built::source("../deploy")) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (program, flag) in text.lines().flat_map(flags) {
            let known = if program == "xpu-top" { &tui } else { &collector };
            assert!(known.contains(&format!("--{flag}")), "{}: {program} has no --{flag}", path.display());
            seen.insert(format!("{program} --{flag}"));
        }
    }
    assert!(seen.contains("xpu-collector --idle-exit") && seen.contains("xpu-top --slurm-job"), "{seen:?}");
}

#[test]
fn systemd_accepts_the_unit() {
    let unit = built::source("../deploy/systemd/xpu-collector.service");
    // The unit names the path of an installed package, which does not exist here.
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("xpu-collector.service");
    let text = fs::read_to_string(unit).unwrap();
    let collector = built::artifact("xpu-collector");
    fs::write(&copy, text.replace("/usr/bin/xpu-collector", collector.to_str().unwrap())).unwrap();
    match Command::new("systemd-analyze").args(["--user", "--man=no", "verify"]).arg(&copy).output() {
        Ok(said) => {
            let wrong = String::from_utf8(said.stderr).unwrap();
            let about_it: Vec<_> =
                wrong.lines().filter(|line| line.contains("xpu-collector.service")).collect();
            assert!(about_it.is_empty(), "{wrong}");
        }
        Err(error) => skipped_beyond_ci(Beyond::Systemd, &format!("systemd-analyze cannot be run: {error}")),
    }
}

#[test]
fn the_batch_script_is_a_script() {
    let script = built::source("../deploy/slurm/train.sbatch");
    assert!(Command::new("bash").arg("-n").arg(script).status().unwrap().success());
}
