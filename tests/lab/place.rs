//! A folder for one test: the stand-in libraries, a runtime directory, and the programs that run there.

use std::{
    ffi::OsStr,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use tempfile::TempDir;
use xpu_wire::endpoint::variable;

use crate::built;

/// Prefixes of inherited variables that would change how a program behaves here.
const FOREIGN: [&str; 10] = [
    "XPU_TOP_",
    "KINETO_",
    "CUDA_",
    "SIMGPU_",
    "LD_",
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "SLURM_",
    "PYTHON",
];

#[derive(Debug)]
pub struct Place {
    dir: TempDir,
}

impl Default for Place {
    fn default() -> Self {
        Self::new()
    }
}

impl Place {
    /// A place with the stand-in libraries of `simgpu`.
    ///
    /// # Panics
    /// If they are not built, or the disk is full.
    #[track_caller]
    pub fn new() -> Self {
        let place = Self::bare();
        for (library, soname) in built::STAND_INS {
            symlink(built::artifact(library), place.path("lib").join(soname))
                .expect("a link in a fresh folder");
        }
        place
    }

    /// A place without any library.
    ///
    /// # Panics
    /// If the disk is full.
    #[track_caller]
    pub fn bare() -> Self {
        let place =
            Self { dir: tempfile::Builder::new().prefix("xpu-top-").tempdir().expect("a temporary folder") };
        for name in ["lib", "run", "shm"] {
            fs::create_dir(place.path(name)).expect("a folder in a fresh folder");
        }
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The path at which the hook looks for its collector.
    pub fn socket(&self) -> PathBuf {
        self.path("collector.sock")
    }

    /// Compiles a program of `tests/hazards`, and returns its path.
    #[track_caller]
    pub fn hazard(&self, name: &str) -> PathBuf {
        let program = self.path(name);
        if !program.exists() {
            built::compile(&format!("hazards/{name}.c"), &program, &[]);
        }
        program
    }

    /// A program in this place, without the hook.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let foreign = |name: &OsStr| FOREIGN.iter().any(|prefix| name.to_string_lossy().starts_with(prefix));
        for (name, _) in std::env::vars_os().filter(|(name, _)| foreign(name)) {
            command.env_remove(name);
        }
        command
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env("SIMGPU_SHM_DIR", self.path("shm"))
            .env(variable::RUNTIME_DIR, self.path("run"))
            .env(variable::SOCKET, self.socket())
            .env("XDG_STATE_HOME", self.path("state"))
            // A host has one such socket name. A test of Kineto sets its own folder.
            .env("XPU_TOP_KINETO_SOCKET", "off");
        // Without this folder, only the ranks themselves see the GPUs.
        if self.path("machine").exists() {
            command.env("SIMGPU_MACHINE_DIR", self.path("machine"));
        }
        command
    }

    /// As [`Self::command`], with the hook preloaded.
    #[track_caller]
    pub fn watched(&self, program: impl AsRef<OsStr>) -> Command {
        self.watched_by(&built::hook(), program)
    }

    /// As [`Self::watched`], with this build of the hook.
    pub fn watched_by(&self, hook: &Path, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.command(program);
        command.env("LD_PRELOAD", hook);
        command
    }

    /// A Python script in this place, with the hook. It may import `tests/hook/gpu.py`.
    #[track_caller]
    pub fn script(&self, text: &str) -> Command {
        self.script_under("python3", text)
    }

    /// As [`Self::script`], under this Python.
    #[track_caller]
    pub fn script_under(&self, python: &str, text: &str) -> Command {
        let mut command = self.watched(python);
        command
            .env("PYTHONPATH", built::source("hook"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .args(["-c", text]);
        command
    }

    /// Files that a program left behind here, or in the host's shared memory.
    pub fn leftovers(&self) -> Vec<PathBuf> {
        let ours = |path: &PathBuf| path.to_string_lossy().contains("xpu-top");
        let host = entries(Path::new("/dev/shm")).into_iter().filter(ours);
        ["run", "shm"].iter().flat_map(|name| entries(&self.path(name))).chain(host).collect()
    }
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).map(|found| found.flatten().map(|entry| entry.path()).collect()).unwrap_or_default()
}
