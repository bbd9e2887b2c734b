//! The text of a tree node, and its kind.

use std::fmt;

use serde::{Deserialize, Serialize};
use xpu_wire::frame::StackFrame;

/// The colour class of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// The kernel's state of a process or thread.
    State,
    /// A role, not a frame.
    Role,
    Python,
    /// A frame of `PyTorch` or NCCL, or a call into CUDA or NCCL.
    Torch,
    C,
    #[serde(rename = "c++")]
    Cpp,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Word {
    pub class: Class,
    #[serde(rename = "function")]
    pub name: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub file: String,
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub line: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_unknown(line: &u32) -> bool {
    *line == 0
}

impl Word {
    pub(super) fn bare(class: Class, name: impl Into<String>) -> Self {
        Self { class, name: name.into(), file: String::new(), line: 0 }
    }

    pub(crate) fn frame(frame: &StackFrame) -> Self {
        let StackFrame { function, file, line } = frame;
        Self { class: class(frame), name: function.clone(), file: file.clone(), line: *line }
    }

    /// Whether it is Python code. This includes Python code of torch or of NCCL's bindings, which has another
    /// class.
    pub fn is_python(&self) -> bool {
        // A program that is no file, as of `python -c` or a notebook, has a name in angle brackets.
        [".py", ".pyx"].iter().any(|ending| self.file.ends_with(ending)) || self.file.starts_with('<')
    }

    /// The part of the path that distinguishes it: from the package on, or the last two names.
    pub fn short_file(&self) -> &str {
        for root in ["/site-packages/", "/dist-packages/"] {
            if let Some(at) = self.file.rfind(root) {
                return &self.file[at + root.len()..];
            }
        }
        let mut slashes = self.file.rmatch_indices('/');
        match slashes.nth(1) {
            Some((at, _)) => &self.file[at + 1..],
            None => &self.file,
        }
    }
}

fn class(frame: &StackFrame) -> Class {
    let StackFrame { function, file, .. } = frame;
    let lower = |text: &str| text.to_ascii_lowercase();
    if lower(file).contains("/torch/") || lower(file).contains("nccl") || lower(function).contains("nccl") {
        Class::Torch
    } else if frame.is_python() {
        Class::Python
    } else if function.contains("::") {
        Class::Cpp
    } else {
        Class::C
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match (self.file.is_empty(), self.line) {
            (true, _) => Ok(()),
            (false, 0) => write!(f, " ({})", self.short_file()),
            (false, line) => write!(f, " ({}:{line})", self.short_file()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(function: &str, file: &str) -> Word {
        Word::frame(&StackFrame { function: function.into(), file: file.into(), line: 7 })
    }

    #[test]
    fn frames_have_the_class_of_their_file() {
        let class = |function: &str, file: &str| word(function, file).class;
        assert_eq!(class("train", "/home/u/train.py"), Class::Python);
        assert_eq!(class("_call", "<frozen importlib>"), Class::Python);
        assert_eq!(class("all_reduce", "/v/site-packages/torch/distributed/c.py"), Class::Torch);
        assert_eq!(class("ncclAllReduce", "libnccl.so.2"), Class::Torch);
        assert_eq!(class("zlib_compress", "libz.so"), Class::C);
        assert_eq!(class("std::thread::join", "libstdc++.so.6"), Class::Cpp);
    }

    #[test]
    fn a_path_is_short_and_still_distinguishes() {
        let shown = |file: &str| word("f", file).to_string();
        assert_eq!(shown("/v/lib/python3.11/site-packages/torch/nn/m.py"), "f (torch/nn/m.py:7)");
        assert_eq!(shown("/home/u/job/train.py"), "f (job/train.py:7)");
        assert_eq!(shown("train.py"), "f (train.py:7)");
    }
}
