//! Finds CUDA's libraries before the first call, because a call without its library would end the program.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::bail;
use cudarc::{cublas, cublaslt, driver, runtime};
use libloading::Library;

/// Versions of the libraries' sonames, the newest first.
const MAJORS: [&str; 3] = ["13", "12", "11"];

/// The libraries' folders in the folder of Python's packages.
const WHEELS: [&str; 4] =
    ["nvidia/cu13/lib", "nvidia/cublas/lib", "nvidia/cuda_runtime/lib", "nvidia/nccl/lib"];

const ASKED_OF_RUNTIME: [&[u8]; 17] = [
    b"cudaGetDeviceCount",
    b"cudaSetDevice",
    b"cudaMemGetInfo",
    b"cudaMalloc",
    b"cudaMemcpyAsync",
    b"cudaGetErrorString",
    b"cudaStreamCreateWithFlags",
    b"cudaStreamSynchronize",
    b"cudaEventCreateWithFlags",
    b"cudaEventRecord",
    b"cudaEventElapsedTime",
    b"cudaDeviceGetPCIBusId",
    b"cudaDeviceGetP2PAttribute",
    b"cudaDeviceEnablePeerAccess",
    b"cudaHostAlloc",
    b"cudaMemcpyPeerAsync",
    b"cudaGetLastError",
];
const ASKED_OF_CUBLAS: [&[u8]; 5] = [
    b"cublasCreate_v2",
    b"cublasSetStream_v2",
    b"cublasGetVersion_v2",
    b"cublasGemmEx",
    b"cublasGemmStridedBatchedEx",
];
const ASKED_OF_CUBLASLT: [&[u8]; 8] = [
    b"cublasLtCreate",
    b"cublasLtMatmulDescCreate",
    b"cublasLtMatmulDescSetAttribute",
    b"cublasLtMatrixLayoutCreate",
    b"cublasLtMatmulPreferenceCreate",
    b"cublasLtMatmulPreferenceSetAttribute",
    b"cublasLtMatmulAlgoGetHeuristic",
    b"cublasLtMatmul",
];

/// Loads the driver, the runtime and cuBLAS.
pub(crate) fn open() -> anyhow::Result<()> {
    // SAFETY: loading runs the libraries' own initializers; NVIDIA's libraries are made to be loaded this way.
    if !unsafe { driver::sys::is_culib_present() } {
        bail!(
            "no libcuda.so.1: this machine has no NVIDIA driver; in a container, start it with its GPUs (--gpus all)"
        );
    }
    // SAFETY: as above.
    let runtime = || unsafe { runtime::sys::is_culib_present() };
    // SAFETY: as above.
    let cublas = || unsafe { cublas::sys::is_culib_present() };
    if !runtime() {
        keep_from(&["cudart"]);
    }
    if !cublas() {
        keep_from(&["cublasLt", "cublas"]);
    }
    for (there, name, wheel) in
        [(runtime(), "libcudart.so", "nvidia-cuda-runtime"), (cublas(), "libcublas.so", "nvidia-cublas")]
    {
        if !there {
            bail!(
                "no {name}: load your CUDA module, set LD_LIBRARY_PATH to the folder that holds it (PyTorch's wheels have it in \
                 site-packages/nvidia/*/lib), or `pip install {wheel}`"
            );
        }
    }
    // SAFETY: both are loaded, as was just checked.
    let (runtime, cublas) = unsafe { (runtime::sys::culib(), cublas::sys::culib()) };
    let asked = ASKED_OF_RUNTIME.iter().map(|&name| (runtime, name));
    for (library, name) in asked.chain(ASKED_OF_CUBLAS.iter().map(|&name| (cublas, name))) {
        // SAFETY: this type is not used for a call.
        if unsafe { library.get::<unsafe extern "C" fn()>(name) }.is_err() {
            bail!("{library:?} has no {}: CUDA 11.4 or newer is needed", String::from_utf8_lossy(name));
        }
    }
    Ok(())
}

/// cublasLt, which is installed with cuBLAS, and its functions for GEMMs of 8-bit floats.
pub(crate) fn has_cublaslt() -> bool {
    // SAFETY: as in `open`.
    if !unsafe { cublaslt::sys::is_culib_present() } {
        return false;
    }
    // SAFETY: it is loaded, as was just checked.
    let library = unsafe { cublaslt::sys::culib() };
    // SAFETY: this type is not used for a call.
    let has = |name: &[u8]| unsafe { library.get::<unsafe extern "C" fn()>(name) }.is_ok();
    ASKED_OF_CUBLASLT.iter().all(|name| has(name))
}

/// NCCL, from the dynamic linker's folders or Python's packages.
pub(crate) fn nccl() -> Option<Library> {
    const NAME: &str = "libnccl.so.2";
    // SAFETY: as in `open`.
    let load = |path: &Path| unsafe { Library::new(path) }.ok();
    load(Path::new(NAME)).or_else(|| places().iter().find_map(|place| load(&place.join(NAME))))
}

/// Loads libraries from the first place that has them all, and keeps them: later lookups of their sonames get
/// these.
fn keep_from(names: &[&str]) {
    for (place, major) in places().iter().flat_map(|place| MAJORS.map(|major| (place, major))) {
        let load = |name: &&str| {
            let path = place.join(format!("lib{name}.so.{major}"));
            // SAFETY: as in `open`.
            if path.exists() { unsafe { Library::new(path) }.ok() } else { None }
        };
        if let Some(libraries) = names.iter().map(load).collect::<Option<Vec<_>>>() {
            libraries.into_iter().for_each(std::mem::forget);
            return;
        }
    }
}

/// Folders of CUDA installations beyond those of the dynamic linker.
fn places() -> Vec<PathBuf> {
    let variables = ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(env::var_os).map(PathBuf::from);
    let toolkits = variables.chain([PathBuf::from("/usr/local/cuda")]);
    let mut places: Vec<_> = toolkits.map(|toolkit| toolkit.join("lib64")).collect();
    // PyTorch's wheels include CUDA: next to this program's own package, and in every Python of `PATH`.
    let own = env::current_exe().ok().and_then(|own| own.ancestors().nth(3).map(Path::to_owned));
    let path = env::var_os("PATH").unwrap_or_default();
    let prefixes = env::split_paths(&path).filter_map(|bin| Some(bin.parent()?.to_owned()));
    for packages in own.into_iter().chain(prefixes.flat_map(|prefix| packages(&prefix))) {
        places.extend(WHEELS.map(|wheel| packages.join(wheel)).into_iter().filter(|place| place.is_dir()));
    }
    places
}

fn packages(prefix: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(prefix.join("lib")).into_iter().flatten().flatten();
    let pythons = all.filter(|entry| entry.file_name().to_string_lossy().starts_with("python3"));
    let both =
        pythons.flat_map(|entry| ["site-packages", "dist-packages"].map(|name| entry.path().join(name)));
    both.collect()
}
