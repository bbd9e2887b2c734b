//! Finds the hook in this process, or loads it.

use std::{
    env,
    ffi::{CStr, OsStr, c_char, c_void},
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use libloading::os::unix::{Library, RTLD_LOCAL, RTLD_NOW};

/// `xpu_top_step` and `xpu_top_step_with` of `xpu_top.h`.
type Step = unsafe extern "C" fn(i64);
type StepWith = unsafe extern "C" fn(i64, u64, u64, f64);
/// `xpu_top_span_begin` and `xpu_top_span_end`.
type SpanBegin = unsafe extern "C" fn() -> u64;
type SpanEnd = unsafe extern "C" fn(*const c_char, u64);

#[derive(Clone, Copy)]
pub(crate) struct Marks {
    step: Step,
    /// Absent in a hook older than this module.
    step_with: Option<StepWith>,
    span: Option<(SpanBegin, SpanEnd)>,
}

pub(crate) enum Hook {
    /// Preloaded by `xpu-top run`.
    Preloaded(Marks),
    /// Opened by this module: it carries marks, but sees no GPU work.
    Packaged(Marks),
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
        if let Some(marks) = marks_of(&Library::this()) {
            return Self::Preloaded(marks);
        }
        match packaged() {
            Ok(marks) => Self::Packaged(marks),
            Err(why) => Self::Missing { why },
        }
    }

    pub(crate) fn step(&self, completed: i64) {
        if let Some(marks) = self.marks() {
            // SAFETY: the header promises that it may be called at any time from any thread; the library is never unmapped.
            unsafe { (marks.step)(completed) };
        }
    }

    pub(crate) fn step_with(&self, completed: i64, tokens: u64, samples: u64, loss: f64) {
        match self.marks().and_then(|marks| marks.step_with) {
            // SAFETY: as above.
            Some(step_with) => unsafe { step_with(completed, tokens, samples, loss) },
            None => self.step(completed),
        }
    }

    fn marks(&self) -> Option<&Marks> {
        match self {
            Self::Preloaded(marks) | Self::Packaged(marks) => Some(marks),
            Self::Disabled | Self::Missing { .. } => None,
        }
    }

    /// Begins a span, and returns when it began; 0 if nothing is observed.
    pub(crate) fn span_begin(&self) -> u64 {
        // SAFETY: as above.
        self.marks().and_then(|marks| marks.span).map_or(0, |(begin, _)| unsafe { begin() })
    }

    /// Ends the span that began at `begun`.
    pub(crate) fn span_end(&self, name: &CStr, begun: u64) {
        if let Some((_, end)) = self.marks().and_then(|marks| marks.span) {
            // SAFETY: as above.
            unsafe { end(name.as_ptr(), begun) };
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

fn marks_of(library: &Library) -> Option<Marks> {
    // SAFETY: every library that exports this name is the hook, whose header gives it this type.
    let step = unsafe { library.get::<Step>(b"xpu_top_step\0") }.ok().map(|symbol| *symbol)?;
    // SAFETY: as above.
    let step_with = unsafe { library.get::<StepWith>(b"xpu_top_step_with\0") }.ok().map(|symbol| *symbol);
    // SAFETY: as above.
    let begin = unsafe { library.get::<SpanBegin>(b"xpu_top_span_begin\0") }.ok().map(|symbol| *symbol);
    // SAFETY: as above.
    let end = unsafe { library.get::<SpanEnd>(b"xpu_top_span_end\0") }.ok().map(|symbol| *symbol);
    Some(Marks { step, step_with, span: begin.zip(end) })
}

/// The hook that was installed with this module.
fn packaged() -> Result<Marks, String> {
    let module = own_path().ok_or("this module cannot find its own directory")?;
    let near = [module.with_file_name("lib"), module.with_file_name("")];
    let path = near.iter().map(|dir| dir.join("libxpu_hook.so")).find(|path| path.exists());
    let path =
        path.ok_or_else(|| format!("libxpu_hook.so is not beside {}; reinstall xpu-top", module.display()))?;
    // SAFETY: the hook's constructor only reads the environment and looks up functions.
    let library = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_LOCAL) }
        .map_err(|error| format!("{} does not load: {error}", path.display()))?;
    let marks = marks_of(&library).ok_or_else(|| format!("{} is not xpu-top's hook", path.display()))?;
    // Never unloaded: its addresses must stay valid.
    std::mem::forget(library);
    Ok(marks)
}

fn own_path() -> Option<PathBuf> {
    let mut found = libc::Dl_info {
        dli_fname: std::ptr::null(),
        dli_fbase: std::ptr::null_mut(),
        dli_sname: std::ptr::null(),
        dli_saddr: std::ptr::null_mut(),
    };
    // SAFETY: the address is that of a function of this library; `found` outlives the call.
    let known = unsafe { libc::dladdr(own_path as *const c_void, &raw mut found) } != 0;
    if !known || found.dli_fname.is_null() {
        return None;
    }
    // SAFETY: dladdr gives a NUL-terminated path that lives as long as this library is loaded.
    let path = unsafe { CStr::from_ptr(found.dli_fname) };
    Some(PathBuf::from(OsStr::from_bytes(path.to_bytes())))
}
