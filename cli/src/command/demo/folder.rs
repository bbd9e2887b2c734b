//! The directory of a demo: the stand-ins under the names of CUDA's libraries, the worker, and the Python
//! package.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail};
use xpu_wire::endpoint::user_id;

use crate::parts::{Part, Parts};

const WORKER: &str = include_str!("worker.py");
/// The worker's modules.
const MODULES: [(&str, &str); 2] =
    [("libraries.py", include_str!("libraries.py")), ("pipeline.py", include_str!("pipeline.py"))];

/// The part of `pybind/python/xpu_top/__init__.py` that the worker uses.
const PACKAGE: &str = "from ._native import Tracer, __version__\n";

/// The names of CUDA's libraries, and the stand-ins behind them.
const LIBRARIES: [(&str, Part); 7] = [
    ("libcuda.so.1", Part::SimgpuDriver),
    ("libcudart.so.13", Part::SimgpuCudart),
    ("libcublas.so.13", Part::SimgpuCublas),
    ("libcublasLt.so.13", Part::SimgpuCublasLt),
    ("libnccl.so.2", Part::SimgpuNccl),
    ("libnvidia-ml.so.1", Part::SimgpuNvml),
    ("libcupti.so.13", Part::SimgpuCupti),
];

/// The directory of a demo, removed when dropped.
#[derive(Debug)]
pub(super) struct DemoFolder {
    root: PathBuf,
    pub(super) hook: PathBuf,
    pub(super) collector: PathBuf,
    pub(super) python: PathBuf,
}

impl DemoFolder {
    pub(super) fn build(parts: &Parts) -> anyhow::Result<Self> {
        let hook = parts.find(Part::Hook)?;
        let collector = parts.find(Part::Collector)?;
        let native = parts.find(Part::Python)?;
        let libraries = LIBRARIES.map(|(name, part)| parts.find(part).map(|path| (name, path)));
        let python = find_python()?;
        let root = make_root()?;
        let folder = Self { root, hook, collector, python };
        folder.fill(&native, libraries).with_context(|| format!("cannot fill {}", folder.root.display()))?;
        Ok(folder)
    }

    fn fill<E>(&self, native: &Path, libraries: [Result<(&str, PathBuf), E>; 7]) -> anyhow::Result<()>
    where
        E: std::error::Error + Send + Sync + 'static,
    {
        for directory in
            [self.libraries(), self.package(), self.rendezvous(), self.shared_memory(), self.logs()]
        {
            fs::create_dir_all(directory)?;
        }
        for library in libraries {
            let (name, path) = library?;
            symlink(path, self.libraries().join(name))?;
        }
        fs::write(self.worker(), WORKER)?;
        for (name, module) in MODULES {
            fs::write(self.root.join(name), module)?;
        }
        fs::write(self.package().join("__init__.py"), PACKAGE)?;
        symlink(native, self.package().join("_native.abi3.so"))?;
        Ok(())
    }

    pub(super) fn libraries(&self) -> PathBuf {
        self.root.join("lib")
    }

    pub(super) fn packages(&self) -> PathBuf {
        self.root.join("python")
    }

    fn package(&self) -> PathBuf {
        self.packages().join("xpu_top")
    }

    pub(super) fn worker(&self) -> PathBuf {
        self.root.join("train.py")
    }

    pub(super) fn rendezvous(&self) -> PathBuf {
        self.root.join("rendezvous")
    }

    /// The folder of the simulated NCCL for the ranks' shared data. It is within this directory, so it is
    /// removed with the rest.
    pub(super) fn shared_memory(&self) -> PathBuf {
        self.root.join("shm")
    }

    /// The GPUs that a node's collector sees.
    pub(super) fn machine(&self, node: u32) -> PathBuf {
        self.root.join(format!("machine-{}", node + 1))
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The runtime directory of one node; its path is short, because a socket's path has at most 107 bytes.
    pub(super) fn runtime(&self, node: u32) -> PathBuf {
        self.root.join(format!("n{}", node + 1))
    }
}

impl Drop for DemoFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}

/// Prefix of demos' directories; the process id and a number follow.
const PREFIX: &str = "xpu-top-demo-";

/// A killed demo leaves its directory; the next demo removes it.
fn sweep(base: &Path) {
    for entry in fs::read_dir(base).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        let ours = entry.metadata().is_ok_and(|found| found.is_dir() && found.uid() == user_id());
        if process.is_some_and(|process| ours && !Path::new(&format!("/proc/{process}")).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// A new directory that only this user can access.
fn make_root() -> anyhow::Result<PathBuf> {
    let base = std::env::temp_dir();
    sweep(&base);
    for attempt in 0..1000 {
        let root = base.join(format!("{PREFIX}{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&root) {
            Ok(()) => return Ok(root),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => {
                return Err(error).with_context(|| {
                    format!("cannot make {}; set TMPDIR to a directory you can write to", root.display())
                });
            }
        }
    }
    bail!("{} is full of old demos; remove {0}/{PREFIX}*", base.display())
}

/// Finds the interpreter itself, because `python3` may be a script that starts several shells first.
fn find_python() -> anyhow::Result<PathBuf> {
    const NEEDED: &str = "the demo needs Python 3.9 or newer as `python3` in PATH";
    let asked = Command::new("python3")
        .args(["-c", "import sys; print(sys.executable if sys.version_info >= (3, 9) else str())"])
        .output()
        .context(NEEDED)?;
    let path = PathBuf::from(String::from_utf8_lossy(&asked.stdout).trim());
    if !asked.status.success() || !path.is_file() {
        bail!("{NEEDED}; the one found is older or does not run");
    }
    Ok(path)
}
