//! Finds libcupti: one that is loaded, else one next to the loaded CUDA runtime, else the system's.

use std::{
    ffi::{CStr, CString, c_void},
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use super::{SONAMES, SUCCESS, cuptiGetVersion, record};
use crate::{gpu::runtime::CUDART, interpose::symbol::Foreign};

const NOT_THERE: &str = "libcupti is not there: install the nvidia-cuda-cupti of the job's CUDA with pip, or put its folder into \
                         LD_LIBRARY_PATH and start the job again";

/// Opens CUPTI for good, and returns its version.
pub(super) fn open() -> Result<u32, String> {
    let found = is_loaded() || beside_runtime().iter().any(|path| load(path)) || by_name();
    if !found {
        return Err(NOT_THERE.to_owned());
    }
    let mut version = 0;
    // SAFETY: `version` outlives the call.
    match unsafe { cuptiGetVersion(&raw mut version) } {
        Some(SUCCESS) if (record::OLDEST..record::TOO_NEW).contains(&version) => Ok(version),
        Some(SUCCESS) => Err(format!("CUPTI's version {version} is not supported: use CUDA 11.8 to 13")),
        Some(code) => Err(super::why(code)),
        None => Err(NOT_THERE.to_owned()),
    }
}

fn is_loaded() -> bool {
    SONAMES.iter().any(|name| dlopen(name, libc::RTLD_NOLOAD))
}

/// Opens CUPTI by its soname; the one for the runtime's major version is tried first.
fn by_name() -> bool {
    let runtime = runtime_path();
    let number = runtime.as_deref().and_then(major).unwrap_or_default();
    let fits =
        |name: &&&CStr| !number.is_empty() && name.to_string_lossy().contains(&format!(".so.{number}"));
    SONAMES.iter().find(fits).is_some_and(|name| dlopen(name, 0))
        || SONAMES.iter().any(|name| dlopen(name, 0))
}

fn load(path: &Path) -> bool {
    CString::new(path.as_os_str().as_bytes()).is_ok_and(|path| dlopen(&path, 0))
}

fn dlopen(name: &CStr, flags: i32) -> bool {
    // SAFETY: the name is NUL-terminated; the constructors that run are CUPTI's own, and CUPTI does nothing
    // until it is called.
    !unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL | flags) }.is_null()
}

/// Where CUPTI may be, given the runtime: in a PyTorch wheel next to the runtime (CUDA 13) or in a
/// neighbouring package; in a toolkit under `extras`.
fn beside_runtime() -> Vec<PathBuf> {
    let Some(runtime) = runtime_path() else { return Vec::new() };
    let (Some(folder), Some(number)) = (runtime.parent(), major(&runtime)) else { return Vec::new() };
    let soname = if number == "11" { "libcupti.so.11.8".to_owned() } else { format!("libcupti.so.{number}") };
    ["", "../../cuda_cupti/lib", "../extras/CUPTI/lib64"]
        .iter()
        .map(|place| folder.join(place).join(&soname))
        .filter(|path| path.exists())
        .collect()
}

fn runtime_path() -> Option<PathBuf> {
    static ANY: Foreign = Foreign::new(c"cudaGetDevice", &CUDART);
    let at = ANY.find();
    if at.is_null() {
        return None;
    }
    // SAFETY: an all-zero Dl_info is valid storage.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: `dladdr` accepts any address; `found` outlives the call.
    let known = unsafe { libc::dladdr(at.cast_const().cast::<c_void>(), &raw mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own C string, which stays as long as the library is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(std::ffi::OsStr::from_bytes(path.to_bytes())))
}

/// `12` of `libcudart.so.12.4.127`
fn major(runtime: &Path) -> Option<String> {
    let name = runtime.file_name()?.to_str()?;
    let (_, version) = name.split_once(".so.")?;
    version.split('.').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_the_runtimes_name() {
        let number = |path| major(Path::new(path));
        assert_eq!(number("/x/libcudart.so.12").as_deref(), Some("12"));
        assert_eq!(number("/x/libcudart.so.11.8.89").as_deref(), Some("11"));
        assert_eq!(number("/x/libcudart.so"), None);
    }
}
