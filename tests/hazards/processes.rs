//! Processes: forks, threads, and programs without CUDA.

use std::process::Command;

use xpu_tests::{
    built::{self, Build},
    listener::Listener,
    place::Place,
    program::{Program, run, until},
};

use crate::{
    artifact::each_build,
    collector::Collector,
    hazard::{Case, Hazard, NOTHING},
    stand_in,
};

/// A program with a library whose constructor makes the first call, before the hook's constructor runs.
fn constructed(source: &str) -> Hazard {
    let hazard = Hazard::bare_and_uncompiled(0);
    stand_in::all(&hazard.place);
    let user = ["-shared", "-fPIC", "-DRUN=user_run", "-DIN_CONSTRUCTOR", stand_in::LINKED[0]];
    hazard.compile("libuser.c", "lib/libuser.so", &user);
    let flags = [&["-Wl,--no-as-needed", "-luser"][..], &stand_in::LINKED].concat();
    hazard.compile(source, "program", &flags);
    hazard
}

harmless! {
    fork_then_exec_is_another_program: Hazard::new("fork_then_exec", 5);
    training_continues_without_threads: Hazard::new("few_threads", 0);
    the_hook_adds_only_one_thread: Hazard::linked("counts_threads.c", 0)
        .allows("at first", 0)
        .allows("after a call", 1)
        .allows("later", 1);
    a_disabled_hook_leaves_no_trace: Hazard::linked("looks_at_itself.c", 0).only_disabled();
    a_disabled_hook_leaves_no_trace_after_a_constructor: constructed("looks_at_itself.c").only_disabled();
    a_constructor_before_the_hooks_makes_the_first_call: constructed("counts_threads.c")
        .allows("at first", 1)
        .allows("after a call", 1)
        .allows("later", 1);
}

#[test]
fn without_cuda_there_is_no_thread_descriptor_or_file() {
    let hazard = Hazard::new("no_cuda", 0);
    assert!(hazard.is_harmless().is_empty(), "a program that uses no GPU has nothing to say");
    let mut program = Program::start(&mut hazard.place.watched(&hazard.program));
    until("its end", || {
        assert_eq!(program.hook_threads(), 0);
        (!program.is_running()).then_some(())
    });
}

#[test]
fn a_thread_keeps_its_small_stack() {
    let received = Hazard::new("small_stacks", 0).is_harmless();
    assert!(received.is_empty(), "a program that uses no GPU has nothing to say");
}

#[test]
fn a_hook_that_is_closed_stays_mapped() {
    each_build(|hook| {
        let flags = run(Command::new("readelf").arg("-d").arg(hook)).stdout;
        assert!(flags.contains("NODELETE"), "{}: {flags}", hook.display());
    });
    closed_hook().is_harmless();
}

/// The program opens the preloaded build. Without the hook it opens the default build.
pub(crate) fn closed_hook() -> Hazard {
    Hazard::new("dlclose_hook", 4).with(built::hook())
}

/// The hook notes fatal signals, whichever code made the first call.
#[test]
fn handlers_are_installed_after_a_constructor() {
    let fatal = 1 << 10 | 1 << 7 | 1 << 6 | 1 << 5 | 1 << 3;
    for hazard in [Hazard::linked("looks_at_itself.c", 0), constructed("looks_at_itself.c")] {
        for build in [Build::Default, Build::Packaged] {
            let Some((end, _)) = hazard.watched(Case::Watched(build, Collector::Absent)) else { continue };
            let said = end.outcome.unwrap().stdout;
            let caught = said.lines().find_map(|line| line.split_once("SigCgt:"));
            let caught = u64::from_str_radix(caught.unwrap().1.trim(), 16).unwrap();
            assert_eq!(caught & fatal, fatal, "{build:?}: {said}");
        }
    }
}

#[test]
fn a_disabled_hook_creates_nothing() {
    let hazard = Hazard::new("plain_gemm", 7);
    let alone = run(&mut hazard.place.command(&hazard.program));
    let listener = Listener::at(&hazard.place.socket());
    let mut program = Program::start(hazard.place.watched(&hazard.program).env("XPU_TOP_DISABLE", "1"));
    until("its end", || {
        assert_eq!(program.hook_threads(), 0);
        (!program.is_running()).then_some(())
    });
    assert_eq!(program.end(), alone);
    assert_eq!(listener.received().len(), 0);
}

/// Programs without CUDA that preloaded libraries have broken before.
#[test]
fn shells_and_interpreters_behave_as_without_the_hook() {
    let place = Place::new();
    let loop_of_execs = "for i in $(seq 50); do bash -c 'exec true' || exit 1; done; echo done";
    let commands: [&[&str]; 5] = [
        &["bash", "-c", "echo $((6 * 7)); exit 3"],
        &["bash", "-c", loop_of_execs],
        &[
            "python3",
            "-c",
            "import os, threading; print(threading.active_count(), len(os.listdir('/proc/self/task')))",
        ],
        &["timeout", "5", "true"],
        &["bash", "-c", "sleep 0.05 & wait; timeout 5 bash -c 'kill -TERM $$'; echo $?"],
    ];
    let listener = Listener::at(&place.socket());
    for command in commands {
        let alone = run(place.command(command[0]).args(&command[1..]));
        let watched = run(place.watched(command[0]).args(&command[1..]));
        assert_eq!(watched, alone, "{command:?}");
        assert_eq!(place.leftovers(), NOTHING, "{command:?}");
    }
    assert_eq!(listener.received().len(), 0);
}
