//! Programs with a sanitizer under `xpu-top run`. A program with `AddressSanitizer` gets advice, starts in
//! any case, and is monitored once it follows the advice.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use xpu_tests::{
    built,
    listener::Listener,
    place::Place,
    port::free_base,
    program::{Outcome, run},
    skip::skipped,
};

/// Compiles the program. Returns `None`, and notes the skip, if this compiler has no such runtime.
fn compiled(place: &Place, flags: &[&str], library: &str) -> Option<PathBuf> {
    let asked = run(Command::new("cc").arg(format!("-print-file-name={library}")));
    if !Path::new(asked.stdout.trim()).is_absolute() {
        skipped(&format!("this compiler has no {library}"));
        return None;
    }
    let program = place.path("plain_gemm_asan");
    built::compile("hazards/plain_gemm.c", &program, flags);
    Some(program)
}

fn needed(program: &Path) -> Option<String> {
    let said = run(Command::new("readelf").arg("-d").arg(program)).stdout;
    let named = said.split(['[', ']']).find(|word| word.starts_with("libasan.so"))?;
    Some(named.to_owned())
}

fn under_run(place: &Place, base: u16, program: &Path, preload: Option<&str>) -> Outcome {
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("home")).env_remove("XDG_CONFIG_HOME").envs(QUIET);
    if let Some(preload) = preload {
        command.env("LD_PRELOAD", preload);
    }
    run(command.args(["run", "--no-collector", "--base-port", &base.to_string(), "--"]).arg(program))
}

/// The GEMMs that were counted in a run with this outcome. The program ends at once, and on a loaded machine the
/// hook may not reach the listener in the time that it lets a process wait; then the program runs again. Both runs
/// may be heard then, with the same count.
fn counted(listener: &Listener, plain: &Outcome, run: impl Fn() -> Outcome) -> Option<u64> {
    (1..=5).find_map(|runs| {
        assert_eq!(run(), *plain);
        let counts: Vec<_> = listener.received().iter().map(|sender| sender.launches().gemms).collect();
        assert!(counts.len() <= runs && counts.iter().all(|count| *count == counts[0]), "{counts:?}");
        counts.first().copied()
    })
}

/// Turns off two checks: the stand-ins do not free their memory at exit, and their code that shares data with
/// threads is not compiled for the sanitizer.
const QUIET: [(&str, &str); 2] = [("ASAN_OPTIONS", "detect_leaks=0"), ("TSAN_OPTIONS", "report_bugs=0")];

#[test]
fn a_shared_sanitizer_must_be_preloaded_first() {
    let place = Place::new();
    let Some(program) = compiled(&place, &["-fsanitize=address"], "libasan.so") else { return };
    let plain = run(place.command(&program).envs(QUIET));
    assert_eq!((plain.status.code(), plain.stderr.as_str()), (Some(7), ""), "{plain:?}");
    let runtime = needed(&program).expect("a library");
    let base = free_base();
    let listener = Listener::at(&place.path("run").join(format!("collector-{base}.sock")));
    // Without `xpu-top run`, the program would refuse to start with the hook in front.
    let refused = run(place.watched(&program).envs(QUIET));
    assert!(refused.stderr.contains("ASan runtime does not come first"), "{refused:?}");
    let advised = under_run(&place, base, &program, None);
    assert_eq!((&advised.stdout, advised.status), (&plain.stdout, plain.status), "{advised:?}");
    let advice = format!("LD_PRELOAD={runtime} xpu-top run -- ...");
    assert!(
        advised.stderr.contains(&advice) && advised.stderr.lines().count() == 1,
        "one line, not {}",
        advised.stderr
    );
    assert!(listener.received().is_empty());
    for hook in built::hooks() {
        let preload = format!("{runtime}:{}", hook.display());
        let watched = run(place.watched_by(Path::new(&preload), &program).envs(QUIET));
        assert_eq!(watched, plain, "{preload}");
    }
    assert_eq!(counted(&listener, &plain, || under_run(&place, base, &program, Some(&runtime))), Some(500));
}

#[test]
fn a_statically_linked_sanitizer_needs_no_change() {
    let place = Place::new();
    let flags = ["-fsanitize=address", "-static-libasan"];
    let Some(program) = compiled(&place, &flags, "libasan.a") else { return };
    let plain = run(place.command(&program).envs(QUIET));
    let base = free_base();
    let listener = Listener::at(&place.path("run").join(format!("collector-{base}.sock")));
    assert_eq!(counted(&listener, &plain, || under_run(&place, base, &program, None)), Some(500));
}

/// The sanitizer's runtime calls `dlsym` before it is initialized.
#[test]
fn a_program_with_thread_sanitizer_needs_no_change() {
    let place = Place::new();
    let Some(program) = compiled(&place, &["-fsanitize=thread"], "libtsan.so") else { return };
    let plain = run(place.command(&program).envs(QUIET));
    if plain.status.code() != Some(7) {
        skipped(&format!("ThreadSanitizer does not run here: {}", plain.stderr));
        return;
    }
    let base = free_base();
    let listener = Listener::at(&place.path("run").join(format!("collector-{base}.sock")));
    assert_eq!(counted(&listener, &plain, || under_run(&place, base, &program, None)), Some(500));
}
