//! What the hook observes in Python: the steps of PyTorch's optimizers, and functions during a capture.

pub(crate) mod functions;
pub(crate) mod optimizer;

/// Python source files of the hook, one after the other, as a C string.
macro_rules! source {
    ($($file:literal),+) => {
        match std::ffi::CStr::from_bytes_with_nul(concat!($(include_str!($file)),+, "\0").as_bytes()) {
            Ok(source) => source,
            Err(_) => panic!("a source has no NUL"),
        }
    };
}
pub(crate) use source;
