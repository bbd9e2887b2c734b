//! AddressSanitizer wants to be the first library of a process, and so does the hook.

use std::{path::Path, process::Command};

use xpu_tests::{built, place::Place, program::run};

/// Whether this compiler brings it.
fn is_there() -> bool {
    let path = Command::new("cc").arg("-print-file-name=libasan.so").output().unwrap().stdout;
    Path::new(String::from_utf8_lossy(&path).trim()).is_absolute()
}

/// Either it runs, or what is said of it says what to do.
#[test]
fn a_program_with_address_sanitizer_runs_or_is_told_why_not() {
    if !is_there() {
        eprintln!("SKIPPED: the compiler has no libasan");
        return;
    }
    let place = Place::new();
    let program = place.path("sanitized");
    built::compile("hazards/address_sanitizer.c", &program, &["-fsanitize=address"]);
    let alone = run(&mut place.command(&program));
    assert_eq!(alone.status.code(), Some(5), "{alone:?}");
    let watched = run(place.command(built::artifact("xpu-top")).args(["run", "--"]).arg(&program));
    let is_told = watched.stderr.contains("xpu-top") && watched.stderr.contains("AddressSanitizer");
    assert!(is_told || (&watched.stdout, watched.status) == (&alone.stdout, alone.status), "{watched:?}");
}
