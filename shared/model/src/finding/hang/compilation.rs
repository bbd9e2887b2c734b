//! Ranks that compile kernels, as in the first step, or wait for a lock file, by the stacks of their main
//! threads. Compiled code runs below functions of the same libraries, so the names are those of functions that
//! only compile.

use xpu_wire::frame::{RankStacks, StackFrame};

/// The end of a Python file, the beginning of its functions that compile, and the name of the compiler.
const COMPILE: [(&str, &str, &str); 14] = [
    // Compiling the backward pass, and autotuning, are not below this one.
    ("torch/_dynamo/convert_frame.py", "", "torch.compile"),
    ("torch/_inductor/compile_fx.py", "compile_fx", "torch.compile"),
    ("torch/_inductor/compile_fx.py", "fx_codegen_and_compile", "torch.compile"),
    ("torch/_inductor/compile_fx.py", "codegen_and_compile", "torch.compile"),
    ("torch/_inductor/async_compile.py", "wait", "torch.compile"),
    ("torch/_inductor/runtime/triton_heuristics.py", "autotune_to_one_config", "torch.compile"),
    ("torch/_inductor/runtime/triton_heuristics.py", "benchmark_all_configs", "torch.compile"),
    ("torch/_inductor/runtime/triton_heuristics.py", "precompile", "torch.compile"),
    ("triton/compiler/compiler.py", "compile", "Triton"),
    ("triton/runtime/autotuner.py", "_bench", "Triton"),
    ("jax/_src/compiler.py", "compile_or_get_cached", "JAX"),
    ("jax/_src/compiler.py", "backend_compile", "JAX"),
    ("torch/utils/cpp_extension.py", "_write_ninja_file_and_build", "torch.utils.cpp_extension"),
    ("torch/utils/cpp_extension.py", "_run_ninja_build", "torch.utils.cpp_extension"),
];

/// Functions that wait for a lock file of another process, often one that compiles.
const LOCKS: [(&str, &str, &str); 2] = [
    (
        "torch/utils/file_baton.py",
        "wait",
        "the lock file of another process (FileBaton.wait), which stays if that process dies",
    ),
    ("filelock/_api.py", "acquire", "the lock file of another process (filelock)"),
];

/// The compiler in which the rank's main thread is: the outermost one.
pub(super) fn compiler(stacks: &RankStacks) -> Option<&'static str> {
    of(stacks, &COMPILE)
}

/// The lock file for which the rank's main thread waits.
pub(super) fn lock_file(stacks: &RankStacks) -> Option<&'static str> {
    of(stacks, &LOCKS)
}

fn of(stacks: &RankStacks, known: &[(&str, &str, &'static str)]) -> Option<&'static str> {
    let name = |frame: &StackFrame| {
        let is_it = |(file, function, _): &&(&str, &str, _)| {
            frame.file.ends_with(file) && frame.own_name().starts_with(function)
        };
        known.iter().find(is_it).map(|&(.., name)| name)
    };
    stacks.main_thread()?.frames.iter().find_map(name)
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::example::stacks;

    use super::*;

    fn inside(frames: &[(&str, &str)]) -> RankStacks {
        let mut stacks = stacks::rank(1, &["main"]);
        let frame = |&(function, file): &(&str, &str)| StackFrame {
            function: function.to_owned(),
            file: format!("/v/lib/python3.12/site-packages/{file}"),
            line: 7,
        };
        stacks.threads.iter_mut().find(|thread| thread.main).unwrap().frames =
            frames.iter().map(frame).collect();
        stacks
    }

    #[test]
    fn compiling_is_distinguished_from_running_what_was_compiled() {
        let compiler = |frames: &[(&str, &str)]| compiler(&inside(frames));
        let calls = ("compile_wrapper", "torch/_dynamo/eval_frame.py");
        assert_eq!(compiler(&[calls, ("_compile", "torch/_dynamo/convert_frame.py")]), Some("torch.compile"));
        assert_eq!(compiler(&[calls, ("__call__", "torch/_inductor/output_code.py")]), None);
        let kernel = "torch/_inductor/runtime/triton_heuristics.py";
        assert_eq!(compiler(&[calls, ("run", kernel)]), None);
        for name in ["autotune_to_one_config", "CachingAutotuner.autotune_to_one_config"] {
            assert_eq!(compiler(&[calls, ("run", kernel), (name, kernel)]), Some("torch.compile"));
        }
        assert_eq!(compiler(&[("run", "triton/runtime/autotuner.py")]), None);
        let compiles = [("run", "triton/runtime/jit.py"), ("compile", "triton/compiler/compiler.py")];
        assert_eq!(compiler(&compiles), Some("Triton"));
        assert_eq!(compiler(&[("backend_compile_and_load", "jax/_src/compiler.py")]), Some("JAX"));
        let extension = "torch/utils/cpp_extension.py";
        let builds = [("_jit_compile", extension), ("_write_ninja_file_and_build_library", extension)];
        assert_eq!(compiler(&builds), Some("torch.utils.cpp_extension"));
    }

    #[test]
    fn waiting_for_a_lock_file_is_distinguished_from_compiling() {
        for wait in ["wait", "FileBaton.wait"] {
            let waits = inside(&[
                ("_jit_compile", "torch/utils/cpp_extension.py"),
                (wait, "torch/utils/file_baton.py"),
            ]);
            assert_eq!(compiler(&waits), None);
            assert!(lock_file(&waits).unwrap().contains("FileBaton.wait"), "{wait}");
        }
        let cache = inside(&[("load", "torch/_inductor/codecache.py"), ("acquire", "filelock/_api.py")]);
        assert!(lock_file(&cache).unwrap().contains("filelock"));
        assert_eq!(lock_file(&inside(&[("load", "torch/_inductor/codecache.py")])), None);
    }
}
