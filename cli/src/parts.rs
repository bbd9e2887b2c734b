//! Finds the other parts of xpu-top: next to this program, as built or as installed by the wheel.

use std::{
    env, io,
    path::{Path, PathBuf},
};

/// A file that some command needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Hook,
    Collector,
    /// The native half of the Python package.
    Python,
    SimgpuDriver,
    SimgpuCudart,
    SimgpuCublas,
    SimgpuCublasLt,
    SimgpuNccl,
    SimgpuNvml,
    SimgpuCupti,
}

impl Part {
    /// Its name in the build.
    fn file(self) -> &'static str {
        match self {
            Self::Hook => "libxpu_hook.so",
            Self::Collector => "xpu-collector",
            Self::Python => "libxpu_top_python.so",
            Self::SimgpuDriver => "libsimgpu_driver.so",
            Self::SimgpuCudart => "libsimgpu_cudart.so",
            Self::SimgpuCublas => "libsimgpu_cublas.so",
            Self::SimgpuCublasLt => "libsimgpu_cublaslt.so",
            Self::SimgpuNccl => "libsimgpu_nccl.so",
            Self::SimgpuNvml => "libsimgpu_nvml.so",
            Self::SimgpuCupti => "libsimgpu_cupti.so",
        }
    }

    /// Its path in the wheel, from the package's directory.
    fn installed(self) -> PathBuf {
        match self {
            Self::Collector => Path::new("bin").join(self.file()),
            Self::Python => PathBuf::from("_native.abi3.so"),
            _ => Path::new("lib").join(self.file()),
        }
    }
}

/// The places to search.
#[derive(Clone, Debug)]
pub struct Parts {
    directory: PathBuf,
}

impl Parts {
    pub fn beside_this_program() -> io::Result<Self> {
        // The kernel resolves links, so a link to the program from another directory works.
        Ok(Self::beside(&env::current_exe()?))
    }

    fn beside(program: &Path) -> Self {
        Self { directory: program.parent().unwrap_or_else(|| Path::new("/")).to_owned() }
    }

    pub fn find(&self, part: Part) -> Result<PathBuf, MissingPart> {
        // Test programs are one directory deeper than the programs that they test.
        let outside = self.directory.parent().unwrap_or(&self.directory);
        let built = [self.directory.join(part.file()), outside.join(part.file())];
        let mut places = built.into_iter().chain([outside.join(part.installed())]);
        places
            .find(|path| path.is_file())
            .ok_or_else(|| MissingPart { file: part.file(), directory: self.directory.clone() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{file} is not beside this program in {directory}; build everything with `cargo build --release --workspace`, or install the wheel again",
    directory = directory.display()
)]
pub struct MissingPart {
    file: &'static str,
    directory: PathBuf,
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn parts_are_found_as_built_as_tested_and_as_installed() {
        let root = env::temp_dir().join(format!("xpu-top-parts-{}", std::process::id()));
        let make = |path: &str| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, "").unwrap();
            path
        };
        let built = make("release/libxpu_hook.so");
        let installed = make("xpu_top/lib/libxpu_hook.so");
        let collector = make("xpu_top/bin/xpu-collector");
        let native = make("xpu_top/_native.abi3.so");
        let find = |program: &str, part| Parts::beside(&root.join(program)).find(part);
        assert_eq!(find("release/xpu-top", Part::Hook), Ok(built.clone()));
        assert_eq!(find("release/deps/end-to-end-123", Part::Hook), Ok(built));
        assert_eq!(find("xpu_top/bin/xpu-top", Part::Hook), Ok(installed));
        assert_eq!(find("xpu_top/bin/xpu-top", Part::Collector), Ok(collector));
        assert_eq!(find("xpu_top/bin/xpu-top", Part::Python), Ok(native));
        let missing = find("release/xpu-top", Part::Collector).unwrap_err().to_string();
        assert!(missing.contains("cargo build --release --workspace"), "{missing}");
        fs::remove_dir_all(root).unwrap();
    }
}
