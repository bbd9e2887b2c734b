//! Finds programs that cargo has built, relative to this test, and refuses those older than their sources.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

use crate::skip::skipped;

/// Builds everything that a test may look for.
const REMEDY: &str = "cargo build --release --workspace";

/// The libraries of simgpu, and the sonames under which programs load them.
pub const STAND_INS: [(&str, &str); 8] = [
    ("libsimgpu_driver.so", "libcuda.so.1"),
    ("libsimgpu_cudart.so", "libcudart.so.13"),
    ("libsimgpu_timeline.so", "libsimgpu_timeline.so"),
    ("libsimgpu_cublas.so", "libcublas.so.13"),
    ("libsimgpu_cublaslt.so", "libcublasLt.so.13"),
    ("libsimgpu_nccl.so", "libnccl.so.2"),
    ("libsimgpu_nvml.so", "libnvidia-ml.so.1"),
    ("libsimgpu_cupti.so", "libcupti.so.13"),
];

/// A build of the hook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Build {
    /// For this machine, with its own linker and C library.
    Default,
    /// As in the packages: built by zig, for an old C library.
    Packaged,
}

/// Builds the packages' hook.
const PACKAGING: &str = "make packaged-hook";

/// The path of `libxpu_hook.so`.
#[track_caller]
pub fn hook() -> PathBuf {
    artifact("libxpu_hook.so")
}

/// The path of this build of the hook. On a developer's machine the packages' build may be missing.
///
/// # Panics
/// If the packages' build is missing in CI, or if a build is older than its sources.
#[track_caller]
pub fn hook_of(build: Build) -> Option<PathBuf> {
    if build == Build::Default {
        return Some(hook());
    }
    let target = directory().parent().expect("a profile is in a target directory").to_owned();
    let path = target.join("wheel/x86_64-unknown-linux-gnu/release/libxpu_hook.so");
    if path.exists() {
        return Some(fresh(path, PACKAGING));
    }
    assert!(env::var_os("CI").is_none_or(|ci| ci != "true"), "{} is not there: {PACKAGING}", path.display());
    None
}

/// The paths of all existing builds. A missing build is noted as a skip.
#[track_caller]
pub fn hooks() -> Vec<PathBuf> {
    let found = [Build::Default, Build::Packaged].map(|build| {
        let path = hook_of(build);
        if path.is_none() {
            skipped(&format!("{build:?}: that build of the hook is not there ({PACKAGING})"));
        }
        path
    });
    found.into_iter().flatten().collect()
}

/// A library or program of the workspace.
///
/// # Panics
/// If it is missing or older than its sources: a test of an old build proves nothing.
#[track_caller]
pub fn artifact(name: &str) -> PathBuf {
    fresh(directory().join(name), REMEDY)
}

#[track_caller]
fn fresh(path: PathBuf, remedy: &str) -> PathBuf {
    let Some(built) = modified(&path) else { panic!("{} is not there: {remedy}", path.display()) };
    let sources = fs::read_to_string(path.with_extension("d")).unwrap_or_default();
    let sources = sources.split_once(": ").map_or("", |(_, sources)| sources);
    for source in sources.split_whitespace() {
        let is_old = modified(Path::new(source)) > Some(built);
        assert!(!is_old, "{} is older than {source}: {remedy}", path.display());
    }
    path
}

/// `target/<profile>`. This program runs in `deps` or `examples` below it.
fn directory() -> PathBuf {
    let here = env::current_exe().expect("Linux provides the program's path");
    here.parent().and_then(Path::parent).expect("cargo runs tests two folders deep").to_owned()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// A path in `tests/`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Compiles a C or C++ source of `tests/` to `to`.
///
/// # Panics
/// If it does not compile.
#[track_caller]
pub fn compile(name: &str, to: &Path, flags: &[&str]) {
    let is_cpp = Path::new(name).extension().is_some_and(|extension| extension == "cpp");
    let mut command = Command::new(if is_cpp { "c++" } else { "cc" });
    command
        .args(["-Wall", "-Wextra", "-O1", "-o"])
        .args([to, &source(name)])
        .args(flags)
        .args(["-ldl", "-lpthread"]);
    let compiled = command.output().expect("a C compiler is installed as cc");
    assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
}
