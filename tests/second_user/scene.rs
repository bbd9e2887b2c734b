//! Two users of a host, neither of them root, and programs that both can reach.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs,
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::{Path, PathBuf},
    process::{Command, id},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use tempfile::TempDir;
use xpu_tests::{
    built,
    port::free_base,
    program::{Program, until},
    skip::skipped,
};
use xpu_wire::endpoint::user_id;

/// A program that makes steps, and its exit code.
pub(crate) const PROGRAM: &str = "keeps_in_step";
pub(crate) const CODE: i32 = 7;

pub(crate) struct Scene {
    dir: TempDir,
    pub(crate) victim: u32,
    pub(crate) stranger: u32,
    pub(crate) base: u16,
}

/// How many scenes this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

impl Scene {
    /// `None` if this user cannot become another one, which is reported as a skip.
    pub(crate) fn new() -> Option<Self> {
        if user_id() != 0 {
            skipped("only root can act as two users");
            return None;
        }
        let dir = tempfile::Builder::new().prefix("xpu-top-users-").tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        // User ids that nobody has, and others for each test, because paths in /tmp contain them.
        let number = id().wrapping_mul(8).wrapping_add(MADE.fetch_add(1, Relaxed));
        let victim = 20_000 + number % 20_000 * 2;
        let scene = Self { dir, victim, stranger: victim + 1, base: free_base() };
        for (name, user, mode) in [
            ("parts", 0, 0o755),
            ("lib", 0, 0o755),
            ("mine", victim, 0o700),
            ("theirs", scene.stranger, 0o755),
        ] {
            let path = scene.path(name);
            fs::create_dir(&path).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            chown(&path, Some(user), Some(user)).unwrap();
        }
        for (library, soname) in built::STAND_INS {
            reachable(&built::artifact(library), &scene.path("lib").join(soname));
        }
        for part in ["libxpu_hook.so", "rude_collector"] {
            reachable(&built::artifact(part), &scene.path("parts").join(part));
        }
        built::compile(&format!("hazards/{PROGRAM}.c"), &scene.path("parts").join(PROGRAM), &[]);
        Some(scene)
    }

    /// As [`Self::new`], with `xpu-top` and its collector.
    pub(crate) fn with_all_parts() -> Option<Self> {
        let scene = Self::new()?;
        for part in ["xpu-top", "xpu-collector"] {
            reachable(&built::artifact(part), &scene.path("parts").join(part));
        }
        Some(scene)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The default place of the victim's sockets.
    pub(crate) fn usual(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/xpu-top-{}", self.victim))
    }

    /// The place of the victim's sockets if the default is taken.
    pub(crate) fn spare(&self) -> PathBuf {
        PathBuf::from(format!("/tmp/xpu-top-{}.1", self.victim))
    }

    pub(crate) fn socket_in(&self, folder: &Path) -> PathBuf {
        folder.join(format!("collector-{}.sock", self.base))
    }

    pub(crate) fn stranger(&self, program: impl AsRef<OsStr>) -> Command {
        as_user(self.stranger, program)
    }

    /// A program of the victim, with the victim's home folder.
    pub(crate) fn victim(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = as_user(self.victim, program);
        command
            .env("HOME", self.path("mine"))
            .env("LD_LIBRARY_PATH", self.path("lib"))
            .env("SIMGPU_SHM_DIR", self.path("mine"))
            .env("XPU_TOP_JOB", SECRET)
            .env("XPU_TOP_BASE_PORT", self.base.to_string());
        command
    }

    /// The victim's program without the hook, with this many steps.
    pub(crate) fn program(&self, steps: u32) -> Command {
        let mut command = self.victim(self.path("parts").join(PROGRAM));
        command.arg(steps.to_string());
        command
    }

    /// The victim's program with the hook preloaded.
    pub(crate) fn watched(&self, steps: u32) -> Command {
        let mut command = self.program(steps);
        command.env("LD_PRELOAD", self.path("parts/libxpu_hook.so"));
        command
    }

    pub(crate) fn xpu_top(&self, arguments: &[&str]) -> Command {
        let mut command = self.victim(self.path("parts/xpu-top"));
        command.args(arguments);
        command
    }

    /// Starts a collector of the stranger, and waits until its socket is open to all.
    pub(crate) fn rude(&self, socket: &Path, manner: &str) -> Program {
        let mut command = self.stranger(self.path("parts/rude_collector"));
        let program = Program::start(command.arg(socket).arg(manner));
        until("the rude collector", || program.wrote().contains("here").then_some(()));
        program
    }

    /// The stranger makes a directory at this path, open to all.
    pub(crate) fn squat(&self, path: &Path) {
        fs::create_dir(path).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        chown(path, Some(self.stranger), Some(self.stranger)).unwrap();
    }
}

/// The job's name, which other users must not learn.
pub(crate) const SECRET: &str = "moonshot";

impl Drop for Scene {
    fn drop(&mut self) {
        // Collectors are detached, so they are found by their user.
        for process in fs::read_dir("/proc").unwrap().flatten() {
            let is_ours = process.metadata().is_ok_and(|of| [self.victim, self.stranger].contains(&of.uid()));
            if let Some(pid) = process.file_name().to_str().filter(|_| is_ours) {
                let _ = Command::new("kill").args(["-KILL", pid]).status();
            }
        }
        let name = self.usual().file_name().unwrap().to_string_lossy().into_owned();
        for place in fs::read_dir("/tmp").unwrap().flatten() {
            let found = place.file_name().to_string_lossy().into_owned();
            if found == name || found.starts_with(&format!("{name}.")) {
                let _ = fs::remove_dir_all(place.path());
            }
        }
    }
}

fn as_user(user: u32, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.uid(user).gid(user).env_clear().current_dir("/").env("PATH", "/usr/bin:/bin");
    command
}

/// Makes a copy of `from` that all users can run: a hard link if both are on the same disk.
fn reachable(from: &Path, to: &Path) {
    if fs::hard_link(from, to).is_err() {
        fs::copy(from, to).unwrap();
    }
}

/// Which of these paths the stranger can read: files by `cat`, folders by `ls`.
pub(crate) fn readable(scene: &Scene, paths: &[PathBuf]) -> BTreeSet<PathBuf> {
    let reads = |path: &&PathBuf| {
        let program = if path.is_dir() { "ls" } else { "cat" };
        let mut command = scene.stranger(program);
        command.arg(path).output().unwrap().status.success()
    };
    paths.iter().filter(reads).cloned().collect()
}

/// Makes a link at `to` that belongs to the stranger.
pub(crate) fn link(scene: &Scene, from: &Path, to: &Path) {
    symlink(from, to).unwrap();
    std::os::unix::fs::lchown(to, Some(scene.stranger), Some(scene.stranger)).unwrap();
}
