//! C programs with their own handlers, children and exits: they end as without the hook, and the report shows
//! the reason.

use std::path::Path;

use xpu_tests::{
    built,
    host::Host,
    listener::Listener,
    place::Place,
    program::{Program, run, until},
};

/// A C program has the same output and the same exit status, whatever the hook records.
#[test]
fn every_fatal_signal_ends_the_program_as_without_the_hook() {
    let place = Place::new();
    let program = place.hazard("dies");
    let endings = [
        "fault", "thread", "handled", "once", "abort", "divide", "overflow", "term", "ignored", "_exit",
        "fork", "vfork", "return",
    ];
    let (hooks, listener) = (built::hooks(), Listener::at(&place.socket()));
    for way in endings {
        let alone = run(place.command(&program).arg(way));
        for (hook, reports) in hooks.iter().flat_map(|hook| ["1", "0"].map(|reports| (hook, reports))) {
            let mut command = place.watched_by(hook, &program);
            let watched = run(command.arg(way).env("XPU_TOP_EXIT_REPORTS", reports));
            assert_eq!(watched, alone, "{way}, reports: {reports}, {}", hook.display());
        }
    }
    drop(listener);
}

/// The program's own handler repairs a thousand faults or jumps out of them. Then the program exits with a
/// code.
#[test]
fn a_survived_signal_is_not_the_reported_cause() {
    let host = Host::new();
    let program = host.place.hazard("recovers_from_faults");
    let mut command = host.place.watched(program);
    command.env("XPU_TOP_SOCKET", host.socket()).env("XPU_TOP_JOB", "train").arg("3");
    let outcome = run(&mut command);
    assert_eq!(outcome.status.code(), Some(3), "{outcome:?}");
    let status = until("the end to be found", || {
        let status = host.status();
        status["findings"][0]["kind"].is_string().then_some(status)
    });
    assert_eq!(status["ranks"][0]["exit"]["class"], "exit_code", "{status}");
}

/// The program's own handler does not repair its fault. The report has the position of the fault, however the
/// handler ends the process.
#[test]
fn a_handler_that_ends_the_process_does_not_hide_the_cause() {
    let host = Host::new();
    let program = host.place.hazard("sig_ends");
    let endings = ["_exit", "exit", "abort", "raise", "raise at once", "again"];
    for way in endings {
        let mut rank = c_rank(&host, &program, way);
        rank.write_line("go");
        let outcome = rank.end();
        assert_eq!(outcome.stdout, "the program's own handler\n", "{way}: {outcome:?}");
        let exit = until("the report of the end", || {
            let exit = host.status()["ranks"][0]["exit"].clone();
            exit["class"].is_string().then_some(exit)
        });
        assert_eq!((&exit["class"], &exit["signal"]), (&"signal".into(), &"SIGSEGV".into()), "{way}: {exit}");
        assert!(exit["text"].as_str().unwrap().contains("at address 0x40"), "{way}: {exit}");
        let frames = exit["frames"].as_array().unwrap();
        assert!(frames.iter().any(|frame| frame["function"] == "reach_out"), "{way}: {exit}");
    }
}

/// A child's exit code is not reported as its parent's.
#[test]
fn the_end_of_a_child_in_the_same_memory_is_not_the_ranks() {
    let host = Host::new();
    let program = host.place.hazard("sig_ends");
    let mut rank = c_rank(&host, &program, "vfork");
    rank.write_line("go");
    until("the child to be gone", || (rank.wrote() == "the child is gone\n").then_some(()));
    rank.signal("KILL");
    rank.end();
    let exit = until("the report of the end", || {
        let exit = host.status()["ranks"][0]["exit"].clone();
        exit["class"].is_string().then_some(exit)
    });
    assert_eq!(exit["class"], "dead", "{exit}");
}

/// A C program that trains. The collector knows it.
#[track_caller]
fn c_rank(host: &Host, program: &Path, way: &str) -> Program {
    let mut command = host.place.watched(program);
    command.env("XPU_TOP_SOCKET", host.socket()).env("XPU_TOP_JOB", "train").arg(way);
    let rank = Program::start(&mut command);
    until("it to train", || {
        let status = host.status();
        (status["ranks"][0]["pid"] == rank.pid() && status["ranks"][0]["state"] == "ok").then_some(())
    });
    rank
}
