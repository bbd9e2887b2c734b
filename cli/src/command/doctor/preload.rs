//! Checks the parts, and whether a tiny program starts under the hook.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use super::check::Check;
use crate::parts::{Part, Parts};

/// A program that prints the files mapped into it, among them the hook.
const TINY: [&str; 2] = ["cat", "/proc/self/maps"];

pub(super) fn checks() -> Vec<Check> {
    let again = "install xpu-top again, or build everything with `cargo build --release --workspace`";
    let parts = match Parts::beside_this_program() {
        Ok(parts) => parts,
        Err(error) => {
            return vec![Check::fail("parts", format!("this program cannot find itself: {error}"), again)];
        }
    };
    let collector = match parts.find(Part::Collector) {
        Ok(path) => version(&path),
        Err(missing) => Check::fail("collector", missing.to_string(), again),
    };
    let hook = match parts.find(Part::Hook) {
        Ok(path) => preload(&path),
        Err(missing) => Check::fail("preload", missing.to_string(), again),
    };
    vec![hook, collector]
}

fn preload(hook: &Path) -> Check {
    let name = "preload";
    let [program, argument] = TINY;
    let started = Command::new(program).arg(argument).env("LD_PRELOAD", hook).stdin(Stdio::null()).output();
    let outcome = match started {
        Ok(outcome) => outcome,
        Err(error) => {
            return Check::fail(name, format!("`{program}` cannot be started: {error}"), "check PATH");
        }
    };
    let said = String::from_utf8_lossy(&outcome.stderr);
    let is_loaded = String::from_utf8_lossy(&outcome.stdout).contains("libxpu_hook.so");
    match said.lines().next() {
        None if is_loaded && outcome.status.success() => {
            Check::ok(name, format!("a program starts under {}", hook.display()))
        }
        Some(why) if why.contains("GLIBC_") => Check::fail(
            name,
            why.trim(),
            "this build needs a newer C library: install the manylinux_2_28 wheel, or build here with `make wheel GLIBC=2.28`",
        ),
        Some(why) => Check::fail(
            name,
            why.trim(),
            "the file must be readable by the job's user, on a file system mounted without noexec",
        ),
        None => Check::fail(
            name,
            format!(
                "a program started with LD_PRELOAD={} does not have it ({})",
                hook.display(),
                outcome.status
            ),
            "setuid and statically linked programs ignore LD_PRELOAD; check whether `cat` is one of them",
        ),
    }
}

fn version(collector: &Path) -> Check {
    let name = "collector";
    let asked =
        Command::new(collector).arg("--version").env_remove("LD_PRELOAD").stdin(Stdio::null()).output();
    let said = asked.as_ref().ok().filter(|said| said.status.success());
    let Some(said) = said.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned()) else {
        let remedy = "the file must be executable, and made for this machine's C library";
        return Check::fail(name, format!("{} does not start", collector.display()), remedy);
    };
    if said.ends_with(xpu_wire::build()) {
        Check::ok(name, said)
    } else {
        let remedy = "install all parts from the same wheel";
        Check::warn(name, format!("{said}, and this is xpu-top {}", xpu_wire::build()), remedy)
    }
}
