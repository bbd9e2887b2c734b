//! The loader: which symbols each object finds with one more library in the process.

use xpu_tests::place::Place;

use crate::{hazard::Hazard, stand_in};

/// A C++ runtime that belongs to the program, and has only this symbol version. The returned flags link
/// against it and set its path.
fn own_cxx(hazard: &Hazard, version: &str) -> [String; 3] {
    let folder = hazard.place.path("own");
    std::fs::create_dir(&folder).unwrap();
    let script = hazard.place.path("own/versions");
    std::fs::write(&script, format!("{version} {{ global: which_cxx; local: *; }};\n")).unwrap();
    let versions = format!("-Wl,--version-script={}", script.display());
    let flags = ["-shared", "-fPIC", "-Wl,-soname,libstdc++.so.6", &versions];
    let library = hazard.compile("standins/cxx.c", "own/libstdc++.so.6", &flags);
    let path = format!("-Wl,-rpath,{}", folder.display());
    [library.display().to_string(), path, "-Wl,--disable-new-dtags".to_owned()]
}

/// A library that needs a symbol version which no real C++ runtime has yet.
fn newer_library() -> Hazard {
    let hazard = Hazard::linked("needs_cxx.c", 0);
    let own = own_cxx(&hazard, "GLIBCXX_9.9.9");
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    let library =
        hazard.compile("libneeds_cxx.c", "libneeds.so", &[&["-shared", "-fPIC"], &own[..]].concat());
    hazard.with(library)
}

/// A program whose own C++ runtime lacks what other libraries need.
fn older_program() -> Hazard {
    let hazard = Hazard::bare_and_uncompiled(0);
    stand_in::all(&hazard.place);
    let own = own_cxx(&hazard, "GLIBCXX_1.0");
    let own: Vec<_> = own.iter().map(String::as_str).collect();
    hazard.compile("starts_with_cxx.c", "program", &[&own[..], &stand_in::LINKED].concat());
    hazard
}

fn static_program() -> Hazard {
    let hazard = Hazard::bare_and_uncompiled(6);
    hazard.compile("static_program.c", "program", &["-static"]);
    hazard
}

/// `env -i` clears the environment before the program starts.
fn without_environment() -> Hazard {
    let place = Place::new();
    let program = place.hazard("no_cuda");
    Hazard::of("env".into(), place, 0).with("-i").with(program)
}

/// A preload that makes calls in each new thread, before its body runs.
fn with_calls_in_new_threads() -> Hazard {
    let mut hazard = Hazard::linked("times_threads.c", 0);
    hazard.others.0 = Some(hazard.compile("libthreads.c", "libthreads.so", &["-shared", "-fPIC"]));
    hazard
}

harmless! {
    a_library_that_needs_a_newer_cxx_is_loaded: newer_library();
    a_program_with_an_older_cxx_starts: older_program();
    errors_of_the_loader_are_the_programs: Hazard::linked("keeps_dlerror.c", 0);
    a_program_with_functions_called_as_those_of_posix: Hazard::linked_with("own_names.c", &["-rdynamic"], 0);
    a_program_with_its_own_clock_is_not_asked_for_the_time: Hazard::linked_with("own_clock.c", &["-rdynamic"], 0);
    a_preload_with_calls_in_new_threads_does_not_delay_the_first_call: with_calls_in_new_threads();
    a_program_that_keeps_the_list_of_objects_itself: Hazard::linked_with("own_list.c", &["-rdynamic"], 0);
    errno_is_the_programs: Hazard::linked("keeps_errno.c", 0);
    a_static_program_is_not_affected: static_program();
    a_program_with_no_environment_is_not_affected: without_environment();
    an_environment_may_be_cleared: Hazard::linked("empty_environment.c", 0);
}
