//! The directory of a user's sockets, locks and logs on this host. All commands of the user find it without
//! communication.

use std::{
    env,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _},
    path::{Path, PathBuf},
};

use super::{
    BasePort,
    trust::{Foreign, keeps, owned},
    user_id, variable,
};

/// Longest path a Unix socket can have, without its final NUL (`sun_path` of `sockaddr_un`).
const LONGEST_SOCKET_PATH: usize = 107;

/// Number of spare names, tried when the usual one is taken. Another user who takes them all can prevent
/// monitoring, but could also take the ports.
const SPARE: u32 = 32;

/// Prefix of the names of the folders for PyTorch's profilers.
const KINETO: &str = "kineto-";

/// The directory of this user's sockets and locks on this host; 0700.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeDir(PathBuf);

/// The directory, and the places passed over before it because they belong to another user.
#[derive(Debug)]
pub struct Located {
    pub dir: RuntimeDir,
    pub passed_over: Vec<RuntimeDirError>,
}

impl Located {
    /// Why another directory than the usual one is used; `None` if the usual one is.
    pub fn why(&self) -> Option<String> {
        let why = |refusal: &RuntimeDirError| match refusal {
            RuntimeDirError::NotOurs { path, why } => format!("{} is not used: {why}", path.display()),
            other => other.to_string(),
        };
        let all: Vec<_> = self.passed_over.iter().map(why).collect();
        (!all.is_empty()).then(|| all.join("; "))
    }
}

impl RuntimeDir {
    /// The path, without creating it: `XPU_TOP_RUNTIME_DIR`, else `$XDG_RUNTIME_DIR/xpu-top`, else
    /// `/tmp/xpu-top-<uid>`, else `/tmp/xpu-top-<uid>.<n>`. Places that belong to others are passed over,
    /// except one that the user named.
    pub fn locate() -> Self {
        Places::of_this_process().look().dir
    }

    /// The directory, created if it is missing. It belongs to this user alone.
    pub fn claim() -> Result<Located, RuntimeDirError> {
        Places::of_this_process().claim()
    }

    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Creates the directory if it is missing, and refuses one that others can write to: another user may
    /// have created it first in `/tmp`.
    pub fn prepare(&self) -> Result<(), RuntimeDirError> {
        match DirBuilder::new().mode(0o700).recursive(true).create(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(self.unusable(error)),
            _ => self.belongs_to(&[user_id()]),
        }
    }

    /// Whether the directory can be trusted: a real directory of this user or root that no other user can
    /// write to. Creates nothing.
    pub fn check(&self) -> Result<(), RuntimeDirError> {
        self.belongs_to(&[user_id(), 0])
    }

    fn belongs_to(&self, owners: &[u32]) -> Result<(), RuntimeDirError> {
        let found = fs::symlink_metadata(&self.0).map_err(|error| self.unusable(error))?;
        owned(&found, owners).map_err(|why| RuntimeDirError::NotOurs { path: self.0.clone(), why })
    }

    fn unusable(&self, error: io::Error) -> RuntimeDirError {
        RuntimeDirError::Unusable { path: self.0.clone(), error }
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The socket on which workers reach the collector with this base port.
    pub fn socket(&self, base: BasePort) -> Result<PathBuf, RuntimeDirError> {
        let path = self.0.join(format!("collector-{}.sock", base.0));
        if path.as_os_str().len() > LONGEST_SOCKET_PATH {
            return Err(RuntimeDirError::TooLong { path });
        }
        Ok(path)
    }

    /// Content of the lock file of a collector that has a key.
    pub const WITH_KEY: &str = "key\n";
    pub const WITHOUT_KEY: &str = "no key\n";

    /// The lock file, which the collector with this base port holds as long as it lives.
    pub fn lock(&self, base: BasePort) -> PathBuf {
        self.0.join(format!("collector-{}.lock", base.0))
    }

    /// The file with what the collector with this base port published last.
    pub fn history(&self, base: BasePort) -> PathBuf {
        self.0.join(format!("history-{}.xpurec", base.0))
    }

    /// The folder with the pipes and files of GPU core dumps.
    pub fn gpu_cores(&self) -> PathBuf {
        self.0.join("gpu")
    }

    /// The folder in which PyTorch's profilers reach the collector with this base port. They create sockets
    /// there too.
    pub fn kineto(&self, base: BasePort) -> PathBuf {
        self.0.join(format!("{KINETO}{}", base.0))
    }

    /// Whether this is such a folder.
    pub fn is_for_kineto(&self, folder: impl AsRef<Path>) -> bool {
        let folder = folder.as_ref();
        let name = folder.file_name().and_then(|name| name.to_str());
        folder.parent() == Some(&*self.0) && name.is_some_and(|name| name.starts_with(KINETO))
    }

    /// Log of the collector with this base port.
    pub fn log(&self, base: BasePort) -> PathBuf {
        self.0.join(format!("collector-{}.log", base.0))
    }
}

#[derive(Debug, thiserror::Error)]
pub enum RuntimeDirError {
    #[error("cannot use {path} as the runtime directory: {error}; set XPU_TOP_RUNTIME_DIR to a directory you own", path = path.display())]
    Unusable { path: PathBuf, error: io::Error },
    #[error("{path} does not belong to you alone: {why}; set XPU_TOP_RUNTIME_DIR to one you own (mode 0700)", path = path.display())]
    NotOurs { path: PathBuf, why: Foreign },
    #[error("{path} is too long for a Unix socket (107 bytes); set XPU_TOP_RUNTIME_DIR to a shorter directory", path = path.display())]
    TooLong { path: PathBuf },
}

/// Where a user's runtime directory may be.
struct Places {
    user: u32,
    /// From `XPU_TOP_RUNTIME_DIR`: used as it is, or refused.
    named: Option<PathBuf>,
    /// The login session's directory.
    session: Option<PathBuf>,
    /// The directory that all users share.
    shared: PathBuf,
}

/// The state of a place.
enum Found {
    Ours,
    Nothing,
    Foreign(RuntimeDirError),
}

impl Places {
    fn of_this_process() -> Self {
        let set = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        Self {
            user: user_id(),
            // Absolute, because a program may change its working directory.
            named: set(variable::RUNTIME_DIR).map(|named| std::path::absolute(&named).unwrap_or(named)),
            session: set("XDG_RUNTIME_DIR"),
            shared: PathBuf::from("/tmp"),
        }
    }

    fn look(&self) -> Located {
        if let Some(named) = &self.named {
            return Located { dir: RuntimeDir(named.clone()), passed_over: Vec::new() };
        }
        let mut passed_over = Vec::new();
        match self.in_session() {
            Ok(Some(dir)) => return Located { dir, passed_over },
            Ok(None) => {}
            Err(why) => passed_over.push(why),
        }
        let usual = self.usual();
        let is_free = match self.found(&usual) {
            Found::Ours => return Located { dir: usual, passed_over },
            Found::Nothing => true,
            Found::Foreign(why) => {
                passed_over.push(why);
                false
            }
        };
        // A spare that exists stays in use even if the usual place becomes free: a collector may serve there.
        let spare = self.spares().find(|spare| self.is_private(spare));
        if spare.is_none() && !is_free {
            // This is the last place, so it was not passed over.
            passed_over.pop();
        }
        Located { dir: spare.unwrap_or(usual), passed_over }
    }

    /// Ranks that start at once all try the same names in the same order, so the others find the one that the
    /// first rank creates.
    fn claim(&self) -> Result<Located, RuntimeDirError> {
        let Located { dir, mut passed_over } = self.look();
        let refusal = match dir.prepare() {
            Ok(()) => return Ok(Located { dir, passed_over }),
            Err(refusal @ RuntimeDirError::NotOurs { .. }) if self.named.is_none() => refusal,
            Err(refusal) => return Err(refusal),
        };
        let make = |spare: &RuntimeDir| {
            let _ = DirBuilder::new().mode(0o700).create(&spare.0);
            self.is_private(spare)
        };
        let Some(spare) = self.spares().find(make) else { return Err(refusal) };
        passed_over.push(refusal);
        Ok(Located { dir: spare, passed_over })
    }

    /// The session's directory, if no other user can replace its contents. After `su`, it often belongs to
    /// another user.
    fn in_session(&self) -> Result<Option<RuntimeDir>, RuntimeDirError> {
        let Some(session) = &self.session else { return Ok(None) };
        let Some(found) = fs::metadata(session).ok().filter(fs::Metadata::is_dir) else { return Ok(None) };
        keeps(&found, self.user).map_err(|why| RuntimeDirError::NotOurs { path: session.clone(), why })?;
        let dir = RuntimeDir(session.join("xpu-top"));
        match self.found(&dir) {
            Found::Foreign(why) => Err(why),
            Found::Ours | Found::Nothing => Ok(Some(dir)),
        }
    }

    fn usual(&self) -> RuntimeDir {
        RuntimeDir(self.shared.join(format!("xpu-top-{}", self.user)))
    }

    fn spares(&self) -> impl Iterator<Item = RuntimeDir> {
        (1..=SPARE).map(|number| RuntimeDir(self.shared.join(format!("xpu-top-{}.{number}", self.user))))
    }

    fn found(&self, dir: &RuntimeDir) -> Found {
        match dir.belongs_to(&[self.user]) {
            Ok(()) => Found::Ours,
            Err(RuntimeDirError::Unusable { error, .. }) if error.kind() == io::ErrorKind::NotFound => {
                Found::Nothing
            }
            Err(why) => Found::Foreign(why),
        }
    }

    fn is_private(&self, dir: &RuntimeDir) -> bool {
        let found = fs::symlink_metadata(&dir.0).ok();
        found.is_some_and(|found| owned(&found, &[self.user]).is_ok() && found.mode() & 0o777 == 0o700)
    }
}

#[cfg(test)]
mod tests;
