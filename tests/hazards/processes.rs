//! Processes: forks, threads, and programs that have nothing to do with CUDA.

use std::process::Command;

use xpu_tests::{
    built,
    listener::Listener,
    place::Place,
    program::{Program, run, until},
};

use crate::hazard::{Hazard, NOTHING};

harmless! {
    fork_then_exec_is_another_program: Hazard::new("fork_then_exec", 5);
    without_threads_training_goes_on: Hazard::new("few_threads", 0);
    threads_are_the_programs_but_for_one: Hazard::linked("counts_threads.c", 0)
        .allows("at first", 0)
        .allows("after a call", 1)
        .allows("later", 1);
    disabled_means_nothing_is_found: Hazard::linked("looks_at_itself.c", 0).only_disabled();
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
    let heard = Hazard::new("small_stacks", 0).is_harmless();
    assert!(heard.is_empty(), "a program that uses no GPU has nothing to say");
}

#[test]
fn a_hook_that_is_closed_stays_mapped() {
    // A C++ library inside it has the same effect today; that is not what this relies on.
    let flags = run(Command::new("readelf").arg("-d").arg(built::hook())).stdout;
    assert!(flags.contains("NODELETE"), "{flags}");
    Hazard::new("dlclose_hook", 4).with(built::hook()).is_harmless();
}

#[test]
fn disabled_means_nothing_is_made() {
    let hazard = Hazard::new("plain_gemm", 7);
    let alone = run(&mut hazard.place.command(&hazard.program));
    let listener = Listener::at(&hazard.place.socket());
    let mut program = Program::start(hazard.place.watched(&hazard.program).env("XPU_TOP_DISABLE", "1"));
    until("its end", || {
        assert_eq!(program.hook_threads(), 0);
        (!program.is_running()).then_some(())
    });
    assert_eq!(program.end(), alone);
    assert_eq!(listener.heard().len(), 0);
}

/// Programs that have nothing to do with CUDA, and that have been broken by preloaded libraries.
#[test]
fn shells_and_interpreters_are_untouched() {
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
    assert_eq!(listener.heard().len(), 0);
}
