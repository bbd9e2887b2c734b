//! The libraries that a job calls: their paths and versions, and how much of their use is visible.

use std::{
    collections::BTreeSet,
    env,
    ffi::c_int,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use libloading::{Library, Symbol};

use super::check::Check;

/// Sonames the hook knows, the newest first.
const CUDART: [&str; 3] = ["libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0"];
const CUBLAS: [&str; 3] = ["libcublas.so.13", "libcublas.so.12", "libcublas.so.11"];
const NCCL: [&str; 1] = ["libnccl.so.2"];
const CUPTI: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so.11"];

/// Largest number of folders that are searched.
const FOLDERS: usize = 512;

/// Prints the folders of Python's packages.
const ASK_PYTHON: &str =
    "import sys; print('\\n'.join(path for path in sys.path if path.endswith('-packages')))";

pub(super) fn checks() -> Vec<Check> {
    let folders = folders();
    let find = |names: &[&str]| find(&folders, names);
    vec![
        driver(find(&["libcuda.so.1"])),
        runtime(find(&CUDART)),
        plain("cublas", find(&CUBLAS), "GEMMs are not seen"),
        nccl(find(&NCCL)),
        nvml(find(&["libnvidia-ml.so.1"])),
        cupti(find(&CUPTI)),
    ]
}

const NO_GPU: &str =
    "on a login node this is normal; where training runs, the program must find its libraries itself";

fn driver(found: Option<PathBuf>) -> Check {
    match found {
        Some(path) => Check::ok("driver", path.display().to_string()),
        None => Check::warn(
            "driver",
            "no libcuda.so.1 here: no NVIDIA driver, or a container without its GPUs",
            "on a login node this is normal; a container is started with its GPUs by --gpus all",
        ),
    }
}

fn plain(name: &'static str, found: Option<PathBuf>, without: &str) -> Check {
    match found {
        Some(path) => Check::ok(name, path.display().to_string()),
        None => Check::warn(name, format!("not found: {without}"), NO_GPU),
    }
}

fn runtime(found: Option<PathBuf>) -> Check {
    let Some(path) = found else { return plain("cudart", None, "CUDA is not seen") };
    match number(&path, b"cudaRuntimeGetVersion\0") {
        Some(version) => Check::ok(
            "cudart",
            format!("CUDA {}.{} at {}", version / 1000, version % 1000 / 10, path.display()),
        ),
        None => Check::ok("cudart", path.display().to_string()),
    }
}

/// What of NCCL is visible depends on how it is called and, without an interposed call, on its version.
fn nccl(found: Option<PathBuf>) -> Check {
    let Some(path) = found else { return plain("nccl", None, "collectives are not seen") };
    let version = number(&path, b"ncclGetVersion\0").map(version_of_nccl);
    let version = version.map_or_else(|| "NCCL".to_owned(), |version| format!("NCCL {version}"));
    Check::ok(
        "nccl",
        format!(
            "{version} at {}: collectives are seen through its public calls, also by addresses that programs look up (vLLM, CuPy, JAX); those of static or renamed NCCL (2.27.3 or newer) through its profiler plugin",
            path.display()
        ),
    )
}

/// Decodes `NCCL_VERSION_CODE`, which has another formula up to NCCL 2.8.
fn version_of_nccl(code: c_int) -> String {
    let (major, minor, patch) = if code < 10_000 {
        (code / 1000, code % 1000 / 100, code % 100)
    } else {
        (code / 10_000, code % 10_000 / 100, code % 100)
    };
    format!("{major}.{minor}.{patch}")
}

fn nvml(found: Option<PathBuf>) -> Check {
    let Some(path) = found else {
        return Check::warn(
            "nvml",
            "no libnvidia-ml.so.1: clocks, power, temperature and Xid errors are not shown",
            NO_GPU,
        );
    };
    match number_of_gpus(&path) {
        Some(Ok(count)) => Check::ok("nvml", format!("{count} GPUs, at {}", path.display())),
        Some(Err(code)) => Check::warn(
            "nvml",
            format!("{} answers with error {code}: no GPU's health is shown", path.display()),
            "`nvidia-smi` shows the cause; in a container the driver must match the host's",
        ),
        None => Check::warn(
            "nvml",
            format!("{} is not the library that its name suggests", path.display()),
            "install the driver again",
        ),
    }
}

fn cupti(found: Option<PathBuf>) -> Check {
    match found {
        Some(path) => Check::ok("cupti", format!("{}, for `capture --kernels`", path.display())),
        None => Check::warn(
            "cupti",
            "not found: `capture --kernels` has no kernels but those of cuBLAS and NCCL",
            "pip install nvidia-cuda-cupti, or add CUDA's extras/CUPTI/lib64 to LD_LIBRARY_PATH",
        ),
    }
}

/// The number that a function stores at its argument.
fn number(path: &Path, function: &[u8]) -> Option<c_int> {
    // SAFETY: loading runs the library's own initializers. NVIDIA's initializers are designed to run at
    // loading.
    let library = unsafe { Library::new(path) }.ok()?;
    // SAFETY: the functions asked for here have this signature in every version.
    let ask: Symbol<'_, unsafe extern "C" fn(*mut c_int) -> c_int> = unsafe { library.get(function) }.ok()?;
    let mut answer = 0;
    // SAFETY: `answer` outlives the call.
    let is_known = unsafe { ask(&raw mut answer) } == 0;
    // Some libraries start threads that outlive a dlclose.
    std::mem::forget(library);
    is_known.then_some(answer)
}

fn number_of_gpus(path: &Path) -> Option<Result<c_int, c_int>> {
    // SAFETY: as above.
    let library = unsafe { Library::new(path) }.ok()?;
    // SAFETY: the function has no argument in any version.
    let begin: Symbol<'_, unsafe extern "C" fn() -> c_int> = unsafe { library.get(b"nvmlInit_v2\0") }.ok()?;
    // SAFETY: the function may be called at any time.
    let code = unsafe { begin() };
    let count = if code == 0 { number(path, b"nvmlDeviceGetCount_v2\0") } else { None };
    std::mem::forget(library);
    Some(count.ok_or(code))
}

fn find(folders: &[PathBuf], names: &[&str]) -> Option<PathBuf> {
    names.iter().find_map(|name| folders.iter().map(|folder| folder.join(name)).find(|path| path.is_file()))
}

/// The folders in which the dynamic linker and Python's packages have libraries.
fn folders() -> Vec<PathBuf> {
    let mut all = Vec::new();
    let set = env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    all.extend(env::split_paths(&set).filter(|path| path.is_absolute()));
    for package in packages() {
        let inside =
            |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
        all.extend(inside(package.join("nvidia")).map(|wheel| wheel.join("lib")));
        all.push(package.join("torch/lib"));
    }
    let root = env::var_os("CUDA_HOME").map_or_else(|| PathBuf::from("/usr/local/cuda"), PathBuf::from);
    all.extend(["lib64", "extras/CUPTI/lib64"].map(|inside| root.join(inside)));
    all.extend(cached());
    let mut known = BTreeSet::new();
    all.retain(|path| known.insert(path.clone()));
    all.truncate(FOLDERS);
    all
}

fn packages() -> Vec<PathBuf> {
    let asked = Command::new("python3")
        .args(["-c", ASK_PYTHON])
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output();
    let said = asked.map(|said| said.stdout).unwrap_or_default();
    String::from_utf8_lossy(&said).lines().map(PathBuf::from).collect()
}

/// Folders of the dynamic linker's cache that have a library of NVIDIA's, and the usual ones.
fn cached() -> Vec<PathBuf> {
    let asked = |program| Command::new(program).arg("-p").stdin(Stdio::null()).output();
    let said =
        asked("ldconfig").or_else(|_| asked("/sbin/ldconfig")).map(|said| said.stdout).unwrap_or_default();
    let text = String::from_utf8_lossy(&said).into_owned();
    let paths =
        text.lines().filter_map(|line| line.rsplit_once("=> ").map(|(_, path)| PathBuf::from(path.trim())));
    let folders = paths.filter_map(|path| path.parent().map(Path::to_owned));
    let usual = ["/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/local/nvidia/lib64"].map(PathBuf::from);
    folders.chain(usual).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_nccl_are_read_by_both_of_its_formulas() {
        assert_eq!(
            (version_of_nccl(2_708), version_of_nccl(22_809)),
            ("2.7.8".to_owned(), "2.28.9".to_owned())
        );
    }

    #[test]
    fn the_newest_library_is_found_first_wherever_it_is() {
        let dir = env::temp_dir().join(format!("xpu-top-doctor-{}", std::process::id()));
        let folders = ["a", "b"].map(|name| dir.join(name));
        for folder in &folders {
            fs::create_dir_all(folder).unwrap();
        }
        fs::write(folders[0].join(CUDART[1]), "").unwrap();
        fs::write(folders[1].join(CUDART[0]), "").unwrap();
        assert_eq!(find(&folders, &CUDART), Some(folders[1].join(CUDART[0])));
        assert_eq!(find(&folders, &NCCL), None);
        fs::remove_dir_all(dir).unwrap();
    }
}
