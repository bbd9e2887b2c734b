//! One test per danger: a program behaves the same with the hook in front as without, whatever its collector does.
//!
//! The programs are in `hazards/`, which says what each is about.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "hazards/hazard.rs"]
mod hazard;

use std::process::Command;

use xpu_shared::frame::Launches;
use xpu_tests::{
    built,
    listener::{Listener, Speaker},
    place::Place,
    program::{Program, run, until},
};

use hazard::{Collector, Hazard, NOTHING, under};

fn sum(heard: &[Speaker], of: impl Fn(&Launches) -> u64) -> u64 {
    heard.iter().map(|speaker| of(&speaker.launches())).sum()
}

#[test]
fn a_plain_program_is_left_as_it_is() {
    let heard = Hazard::new("plain_gemm", 7).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 500);
    assert_eq!(heard.len(), 1);
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
fn fork_child_starts_clean() {
    let heard = Hazard::new("fork_child_uses_gpu_not", 0).is_harmless_and_heard();
    assert_eq!(heard.len(), 1, "the children did nothing worth saying");
    assert_eq!(sum(&heard, |launches| launches.gemms), 251);
}

#[test]
fn forked_workers_that_use_the_gpu_each_have_their_own_observer() {
    let heard = Hazard::new("fork_child_uses_gpu", 0).is_harmless_and_heard();
    let mut gemms: Vec<_> = heard.iter().map(|speaker| speaker.launches().gemms).collect();
    gemms.sort_unstable();
    // What the fourth child tried was refused.
    assert_eq!(gemms.split_off(gemms.len() - 4), [50, 50, 50, 100]);
    assert!(gemms.iter().all(|&gemms| gemms == 0), "{gemms:?}");
}

#[test]
fn data_loaders_of_python_are_left_alone() {
    let heard = Hazard::script("data_loaders.py").is_harmless_and_heard();
    let mut gemms: Vec<_> = heard.iter().map(|speaker| speaker.launches().gemms).collect();
    gemms.sort_unstable();
    assert_eq!(gemms, [40, 40, 40, 10 + 3 * 40 + 3 * 40 + 3], "only who uses the GPU has something to say");
}

#[test]
fn exit_during_a_collective_is_not_held_up() {
    Hazard::new("exit_in_collective", 0).is_harmless();
}

#[test]
fn another_preload_sees_every_call_before_the_hook_or_behind_it() {
    for is_first in [true, false] {
        let mut hazard = Hazard::new("second_preload", 0);
        let other = hazard.place.path("libcounter.so");
        built::compile("hazards/libcounter.c", &other, &["-shared", "-fPIC"]);
        hazard.others = if is_first { (Some(other), None) } else { (None, Some(other)) };
        let heard = hazard.is_harmless_and_heard();
        assert_eq!(sum(&heard, |launches| launches.gemms), 100, "first: {is_first}");
        assert_eq!(sum(&heard, |launches| launches.kernels), 70, "first: {is_first}");
        assert_eq!(sum(&heard, |launches| launches.collectives), 30, "first: {is_first}");
    }
}

#[test]
fn a_thread_keeps_its_small_stack() {
    let heard = Hazard::new("small_stacks", 0).is_harmless();
    assert!(heard.is_empty(), "a program that uses no GPU has nothing to say");
}

#[test]
fn streams_that_come_and_go_are_all_observed() {
    let heard = Hazard::new("streams_come_and_go", 0).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 5000);
    assert_eq!(sum(&heard, |launches| launches.collectives), 5000);
}

#[test]
fn fork_then_exec_is_another_program() {
    Hazard::new("fork_then_exec", 5).is_harmless();
}

#[test]
fn exit_in_another_thread_is_not_held_up() {
    Hazard::new("exit_in_thread", 9).is_harmless();
}

#[test]
fn calls_at_exit_go_through() {
    let heard = Hazard::new("atexit_calls", 6).is_harmless_and_heard();
    assert!(sum(&heard, |launches| launches.gemms) >= 20);
}

#[test]
fn libraries_opened_locally_are_found() {
    let hazard = Hazard::new("dlopen_local", 0);
    let (lib, caller) = (hazard.place.path("lib"), hazard.place.path("libcaller.so"));
    let flags = ["-shared", "-fPIC", "-L", lib.to_str().unwrap()];
    let libraries = ["-l:libcublas.so.13", "-l:libcudart.so.13", "-l:libnccl.so.2"];
    built::compile("hazards/libcaller.c", &caller, &[&flags[..], &libraries].concat());
    let heard = hazard.with(caller).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 100);
    assert_eq!(sum(&heard, |launches| launches.collectives), 4, "ncclBcast counts once");
}

#[test]
fn no_context_is_made_on_another_ranks_device() {
    let heard = Hazard::new("foreign_context", 0).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 150);
}

#[test]
fn errors_pass_through() {
    let heard = Hazard::new("error_passes_through", 0).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 901, "what the library refused was not launched");
}

#[test]
fn a_capture_in_progress_is_not_spoilt() {
    let heard = Hazard::new("capture_in_progress", 0).is_harmless_and_heard();
    assert_eq!(
        sum(&heard, |launches| launches.gemms),
        3 * (2000 + 3 * 200),
        "three launches of what was captured"
    );
    assert_eq!(sum(&heard, |launches| launches.captured), 3 * 200);
    assert_eq!(sum(&heard, |launches| launches.graphs), 9);
}

#[test]
fn captures_that_fail_are_the_programs_own() {
    let heard = Hazard::new("captures_that_fail", 0).is_harmless();
    assert_eq!(sum(&heard, |launches| launches.gemms), 4 + 3 * 10, "what was captured in vain never ran");
    assert_eq!(sum(&heard, |launches| launches.kernels), 3);
    assert_eq!(sum(&heard, |launches| launches.graphs), 3);
    let blind = &heard[0].summaries.last().unwrap().hook.blind;
    assert_eq!(blind[..], [""; 0], "a free that was refused freed nothing");
}

#[test]
fn ranks_forked_before_any_call_are_two() {
    let heard = Hazard::new("two_ranks", 0).is_harmless_and_heard();
    assert_eq!(heard.len(), 2);
    for rank in &heard {
        assert_eq!(rank.launches().collectives, 50 + 2 + 1 + 1);
        assert_eq!(rank.launches().point_to_point, 50 * 12 + 50);
    }
}

#[test]
fn threads_that_come_and_go_are_observed_or_counted_as_not() {
    let heard = Hazard::new("threads_come_and_go", 0).is_harmless_and_heard();
    let unobserved =
        heard.iter().filter_map(|speaker| Some(speaker.summaries.last()?.hook.dropped_records)).sum::<u64>();
    let observed = sum(&heard, |launches| launches.gemms + launches.kernels);
    // Each thread makes other calls too, which may be among those that found no lane.
    assert!(observed <= 20_000 && observed + unobserved >= 20_000, "{observed} and {unobserved}");
}

#[test]
fn signals_reach_the_programs_own_threads() {
    Hazard::new("signals", 0).is_harmless();
}

#[test]
fn faults_that_the_program_recovers_from_stay_its_own() {
    let heard = Hazard::new("recovers_from_faults", 0).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 3);
}

#[test]
fn a_hook_that_is_closed_stays_mapped() {
    // A C++ library inside it has the same effect today; that is not what this relies on.
    let flags = run(Command::new("readelf").arg("-d").arg(built::hook())).stdout;
    assert!(flags.contains("NODELETE"), "{flags}");
    Hazard::new("dlclose_hook", 4).with(built::hook()).is_harmless();
}

#[test]
fn the_switch_may_be_thrown_at_any_moment() {
    let heard = Hazard::new("switched_while_used", 0).is_harmless_and_heard();
    assert!(sum(&heard, |launches| launches.gemms) > 0);
}

#[test]
fn calls_by_a_handle_are_unseen_and_said_to_be() {
    let heard = Hazard::new("by_handle", 0).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.gemms), 50);
    assert_eq!(sum(&heard, |launches| launches.collectives), 0);
    let blind = &heard[0].summaries.last().unwrap().hook.blind;
    assert_eq!(blind[..], ["100 NCCL calls on communicators whose making was not seen"]);
}

#[test]
fn handles_are_not_looked_for_where_the_program_has_nothing_any_more() {
    let heard = Hazard::new("places_that_go", 0).is_harmless_and_heard();
    // Of each round the first; what was made behind the back, and its place gone, may be unknown.
    let collectives = sum(&heard, |launches| launches.collectives);
    assert!((50..=100).contains(&collectives), "{collectives}");
}

#[test]
fn communicators_that_are_refused_are_refused() {
    let heard = Hazard::new("refused_communicators", 0).is_harmless_and_heard();
    assert_eq!(sum(&heard, |launches| launches.collectives), 1);
    assert!(heard[0].summaries.last().unwrap().hook.blind[0].ends_with("whose making was not seen"));
}

#[test]
fn without_descriptors_training_goes_on() {
    Hazard::new("few_descriptors", 0).is_harmless();
}

#[test]
fn without_threads_training_goes_on() {
    Hazard::new("few_threads", 0).is_harmless();
}

#[test]
fn without_memory_training_goes_on() {
    Hazard::new("few_memory", 0).is_harmless();
}

/// What valgrind finds it says on stderr and by exit code 99: neither is what the program does by itself. It keeps threads and address space
/// for itself, so the programs that run short of them are not here.
#[test]
#[ignore = "needs valgrind, and a minute: make memcheck"]
fn memory_is_not_misused() {
    let programs = [
        ("plain_gemm", 7),
        ("fork_child_uses_gpu_not", 0),
        ("fork_child_uses_gpu", 0),
        ("exit_in_collective", 0),
        ("exit_in_thread", 9),
        ("atexit_calls", 6),
        ("error_passes_through", 0),
        ("capture_in_progress", 0),
        ("captures_that_fail", 0),
        ("two_ranks", 0),
        ("streams_come_and_go", 0),
        ("switched_while_used", 0),
        ("by_handle", 0),
    ];
    for (name, code) in programs {
        let hazard = Hazard::new(name, code);
        let alone = run(&mut hazard.place.command(&hazard.program));
        for collector in [Collector::Listens, Collector::Dies] {
            let mut command = hazard.place.watched("valgrind");
            command.args(["-q", "--trace-children=yes", "--fair-sched=yes", "--error-exitcode=99"]);
            let (checked, _) = under(collector, &hazard.place, command.arg(&hazard.program));
            assert_eq!(checked, alone, "{name}, collector: {collector:?}");
        }
    }
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
