//! What cargo has built, found from where this test runs; and refused when its sources are newer.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    time::SystemTime,
};

/// What puts everything a test may look for where it looks.
const REMEDY: &str = "cargo build --release --workspace";

/// The libraries of simgpu, and the sonames programs know them under.
pub const STAND_INS: [(&str, &str); 7] = [
    ("libsimgpu_driver.so", "libcuda.so.1"),
    ("libsimgpu_cudart.so", "libcudart.so.13"),
    ("libsimgpu_cublas.so", "libcublas.so.13"),
    ("libsimgpu_cublaslt.so", "libcublasLt.so.13"),
    ("libsimgpu_nccl.so", "libnccl.so.2"),
    ("libsimgpu_nvml.so", "libnvidia-ml.so.1"),
    ("libsimgpu_cupti.so", "libcupti.so.13"),
];

/// The path of `libxpu_hook.so`.
#[track_caller]
pub fn hook() -> PathBuf {
    artifact("libxpu_hook.so")
}

/// A library or program of the workspace.
///
/// # Panics
/// If it is missing or older than its sources: a test of an old build says nothing.
#[track_caller]
pub fn artifact(name: &str) -> PathBuf {
    let path = directory().join(name);
    let Some(built) = modified(&path) else { panic!("{} is not there: {REMEDY}", path.display()) };
    let stem = name.strip_suffix(".so").unwrap_or(name);
    let sources = fs::read_to_string(path.with_file_name(format!("{stem}.d"))).unwrap_or_default();
    let sources = sources.split_once(": ").map_or("", |(_, sources)| sources);
    for source in sources.split_whitespace() {
        assert!(modified(Path::new(source)) <= Some(built), "{name} is older than {source}: {REMEDY}");
    }
    path
}

/// `target/<profile>`: this runs in `deps` or `examples` below it.
fn directory() -> PathBuf {
    let here = env::current_exe().expect("Linux tells a program its path");
    here.parent().and_then(Path::parent).expect("cargo runs tests two folders deep").to_owned()
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|found| found.modified()).ok()
}

/// A path in `tests/`.
pub fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Compiles a C source of `tests/` to `to`.
///
/// # Panics
/// If the compiler does not like it.
#[track_caller]
pub fn compile(name: &str, to: &Path, flags: &[&str]) {
    let mut command = Command::new("cc");
    command
        .args(["-Wall", "-Wextra", "-O1", "-o"])
        .args([to, &source(name)])
        .args(flags)
        .args(["-ldl", "-lpthread"]);
    let compiled = command.output().expect("a C compiler is installed as cc");
    assert!(compiled.status.success(), "{name}: {}", String::from_utf8_lossy(&compiled.stderr));
}
