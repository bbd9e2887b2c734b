//! Finds the hook in this process, or brings it in.

use std::{
    env,
    ffi::{CStr, OsStr, c_void},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// `xpu_top_step` of `xpu_top.h`.
type Step = unsafe extern "C" fn(i64);

pub(crate) enum Hook {
    /// In front of everything, by `xpu-top run`.
    Preloaded(Step),
    /// Opened by this module: carries marks, sees no GPU work.
    Packaged(Step),
    Disabled,
    Missing {
        why: String,
    },
}

impl Hook {
    pub(crate) fn find() -> Self {
        if env::var_os("XPU_TOP_DISABLE").is_some_and(|value| value == "1") {
            return Self::Disabled;
        }
        if let Some(step) = step_of(&Library::this()) {
            return Self::Preloaded(step);
        }
        match packaged() {
            Ok(step) => Self::Packaged(step),
            Err(why) => Self::Missing { why },
        }
    }

    pub(crate) fn step(&self, completed: i64) {
        if let Self::Preloaded(step) | Self::Packaged(step) = self {
            // SAFETY: the header promises that it may be called at any time from any thread; the library is never unmapped.
            unsafe { step(completed) };
        }
    }

    pub(crate) fn source(&self) -> &'static str {
        match self {
            Self::Preloaded(_) => "preloaded",
            Self::Packaged(_) => "packaged",
            Self::Disabled => "disabled",
            Self::Missing { .. } => "missing",
        }
    }
}

fn step_of(library: &Library) -> Option<Step> {
    // SAFETY: every library that exports this name is the hook, whose header gives it this type.
    unsafe { library.get::<Step>(b"xpu_top_step\0") }.ok().map(|symbol| *symbol)
}

/// The hook that was installed with this module.
fn packaged() -> Result<Step, String> {
    let module = own_path().ok_or("this module cannot tell where it is installed")?;
    let near = [module.with_file_name("lib"), module.with_file_name("")];
    let path = near.iter().map(|dir| dir.join("libxpu_hook.so")).find(|path| path.exists());
    let path =
        path.ok_or_else(|| format!("libxpu_hook.so is not beside {}; reinstall xpu-top", module.display()))?;
    // SAFETY: the hook has no constructor that does anything.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| format!("{} does not load: {error}", path.display()))?;
    let step = step_of(&library).ok_or_else(|| format!("{} is not xpu-top's hook", path.display()))?;
    // Kept open for ever: the address of `step` must stay what it is.
    std::mem::forget(library);
    Ok(step)
}

fn own_path() -> Option<PathBuf> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is of a function of this library; `found` outlives the call.
    let known = unsafe { libc::dladdr(own_path as *const c_void, &raw mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a NUL-terminated path that lives as long as this library is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}
