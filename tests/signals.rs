//! Programs that handle signals and exceptions themselves. They find the handlers that they set, and a fault
//! that they repair takes no more stack and no more system calls.
//!
//! `XPU_TEST_PYTHONS=/a/bin/python3:/b/bin/python3` runs the exception tests under these Pythons; the default
//! is `python3`.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use xpu_tests::{
    built,
    place::Place,
    program::{Outcome, run},
};

/// Checks that output and exit status are the same with the hook preloaded, with and without exit reports,
/// and with the hook disabled.
#[track_caller]
fn is_the_same(name: &str, arguments: &[&str]) -> Outcome {
    let place = Place::new();
    let program = place.hazard(name);
    let alone = run(place.command(&program).args(arguments));
    for hook in built::hooks() {
        for set in [("XPU_TOP_EXIT_REPORTS", "1"), ("XPU_TOP_EXIT_REPORTS", "0"), ("XPU_TOP_DISABLE", "1")] {
            let watched = run(place.watched_by(&hook, &program).args(arguments).env(set.0, set.1));
            assert_eq!(watched, alone, "{name} {arguments:?}, {set:?}, {}", hook.display());
        }
    }
    alone
}

#[test]
fn a_program_finds_its_own_handlers() {
    let outcome = is_the_same("sig_own_handlers", &[]);
    assert_eq!(outcome.status.code(), Some(0), "{outcome:?}");
    for line in
        ["vfork: exit -1, signal 11", "the parent's handler: is there", "twice: signal 11", "after exec"]
    {
        assert!(outcome.stdout.contains(line), "{line}: {outcome:?}");
    }
}

#[test]
fn a_small_stack_for_signals_suffices() {
    let outcome = is_the_same("sig_small_stack", &[]);
    assert_eq!(outcome.stdout, "mended 1011\n", "{outcome:?}");
}

/// A process that makes a forbidden system call is killed.
#[test]
fn a_strict_list_of_system_calls_suffices() {
    for way in ["alone", "fork", "vfork", "clone"] {
        let outcome = is_the_same("sig_strict", &[way]);
        assert_eq!(outcome.status.code(), Some(5), "{way}: {outcome:?}");
    }
}

#[test]
fn exception_hooks_behave_as_without_the_hook() {
    let named = std::env::var("XPU_TEST_PYTHONS").unwrap_or_else(|_| "python3".to_owned());
    for python in named.split(':') {
        let place = Place::new();
        let script = built::source("hazards").join("sig_excepthooks.py");
        for mode in ["plain", "chains", "own"] {
            let alone = run(place.command(python).arg(&script).arg(mode));
            assert_eq!(alone.status.code(), Some(1), "{python} {mode}: {alone:?}");
            assert!(!alone.stderr.contains("AssertionError"), "{python} {mode}: {alone:?}");
            for hook in built::hooks() {
                for reports in ["1", "0"] {
                    let mut command = place.watched_by(&hook, python);
                    let watched = run(command.arg(&script).arg(mode).env("XPU_TOP_EXIT_REPORTS", reports));
                    assert_eq!(watched, alone, "{python} {mode}, reports: {reports}, {}", hook.display());
                }
                let looked = run(place.watched_by(&hook, python).arg(&script).arg(mode).env("LOOK", "1"));
                assert!(looked.stdout.ends_with("noted: True\nnoted: True\n"), "{python} {mode}: {looked:?}");
            }
        }
    }
}
