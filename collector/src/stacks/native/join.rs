//! Merges Python's frames into the native ones, at the interpreter's position.

use xpu_wire::frame::{RankStacks, StackFrame};

/// The interpreter's functions. One call runs all frames up to the next frame that was called from C.
const RUNS: [&str; 3] = ["_PyEval_EvalFrameDefault", "PyEval_EvalFrameDefault", "PyEval_EvalFrameEx"];

/// Merges the frames. Both inputs have the innermost frame first, and state for each Python frame whether it
/// was called from C. The result has the outermost frame first.
///
/// Frames of the interpreter itself, and frames that started it, are left out.
pub(crate) fn join(python: Vec<(StackFrame, bool)>, native: &[StackFrame]) -> (Vec<StackFrame>, usize) {
    let mut all = Vec::new();
    let mut rest = python.into_iter().peekable();
    let threaded_python = rest.peek().is_some();
    let runs = if threaded_python { runs(native) } else { Vec::new() };
    for (at, frame) in native.iter().enumerate() {
        if threaded_python && rest.peek().is_none() {
            break;
        }
        if runs.contains(&at) {
            let is_last = runs.last() == Some(&at) && !is_run(frame);
            for (frame, entry) in rest.by_ref() {
                all.push(frame);
                if entry && !is_last {
                    break;
                }
            }
        } else if !is_interpreter(&frame.file) {
            all.push(frame.clone());
        }
    }
    all.extend(rest.map(|(frame, _)| frame));
    let more = all.len().saturating_sub(RankStacks::FRAMES);
    all.truncate(RankStacks::FRAMES);
    all.reverse();
    (all, more)
}

/// The frames at which the interpreter runs frames of Python. If none has the name of the interpreter's
/// function, because the interpreter was built from tail calls (3.14) and has no symbols, the first frame of
/// each group of frames in the interpreter's file stands for a run, and the last group runs all that is left.
fn runs(native: &[StackFrame]) -> Vec<usize> {
    let named: Vec<_> = (0..native.len()).filter(|&at| is_run(&native[at])).collect();
    if !named.is_empty() {
        return named;
    }
    let is_inside = |at: usize| is_interpreter(&native[at].file);
    (0..native.len()).filter(|&at| is_inside(at) && (at == 0 || !is_inside(at - 1))).collect()
}

fn is_run(frame: &StackFrame) -> bool {
    RUNS.iter().any(|name| frame.function.starts_with(name))
}

fn is_interpreter(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.starts_with("libpython") || name.starts_with("python")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn native(names: &[&str]) -> Vec<StackFrame> {
        let frame = |name: &&str| {
            let (function, file) = name.split_once('@').unwrap_or((name, "/lib/libc.so.6"));
            StackFrame { function: function.into(), file: file.into(), line: 0 }
        };
        names.iter().map(frame).collect()
    }

    fn python(names: &[(&str, bool)]) -> Vec<(StackFrame, bool)> {
        let frame = |name: &str| StackFrame { function: name.into(), file: "a.py".into(), line: 1 };
        names.iter().map(|&(name, entry)| (frame(name), entry)).collect()
    }

    fn joined(python: Vec<(StackFrame, bool)>, native: &[StackFrame]) -> Vec<String> {
        join(python, native).0.into_iter().map(|frame| frame.function).collect()
    }

    #[test]
    fn each_run_of_the_interpreter_has_the_frames_it_runs() {
        let native = native(&[
            "poll",
            "wait@/v/torch/lib/libtorch.so",
            "_PyEval_EvalFrameDefault.cold@/usr/bin/python3.12",
            "_PyObject_Call@/usr/bin/python3.12",
            "call_back@/v/torch/lib/libtorch.so",
            "_PyEval_EvalFrameDefault@/usr/bin/python3.12",
            "Py_RunMain@/usr/bin/python3.12",
            "__libc_start_main",
        ]);
        let python = python(&[("inner", false), ("hook", true), ("train", false), ("<module>", true)]);
        assert_eq!(
            joined(python, &native),
            ["<module>", "train", "call_back", "hook", "inner", "wait", "poll"]
        );
    }

    #[test]
    fn an_interpreter_without_symbols_runs_frames_in_each_of_its_groups() {
        let native = native(&[
            "poll",
            "(unnamed)@/usr/bin/python3.14",
            "(unnamed)@/usr/bin/python3.14",
            "call_back@/v/torch/lib/libtorch.so",
            "(unnamed)@/usr/bin/python3.14",
            "Py_RunMain@/usr/bin/python3.14",
            "__libc_start_main",
        ]);
        let python = python(&[("hook", true), ("sorted_by", true), ("<module>", true)]);
        assert_eq!(joined(python, &native), ["<module>", "sorted_by", "call_back", "hook", "poll"]);
    }

    #[test]
    fn frames_of_unseen_interpreter_runs_are_kept() {
        let native = native(&["poll", "_PyEval_EvalFrameDefault@python3"]);
        let python = python(&[("inner", true), ("<module>", true)]);
        assert_eq!(joined(python, &native), ["<module>", "inner", "poll"]);
        assert_eq!(joined(Vec::new(), &native[..1]), ["poll"]);
    }
}
