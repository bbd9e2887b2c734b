//! Exits of the program and of its threads.

use crate::hazard::Hazard;

/// A hazard that takes a library whose loading does not end.
fn beside_a_loader(hazard: Hazard) -> Hazard {
    let library = hazard.compile("libsleeps.c", "libsleeps.so", &["-shared", "-fPIC"]);
    hazard.with(library)
}

fn clones() -> Hazard {
    let hazard = Hazard::new("clones_beside_loader", 0);
    let library = hazard.compile("libcounter.c", "libcounter.so", &["-shared", "-fPIC"]);
    hazard.with(library)
}

fn nobody() -> Hazard {
    let hazard = Hazard::linked("becomes_nobody.c", 0);
    let root = hazard.place.path("root");
    std::fs::create_dir(&root).unwrap();
    hazard.with(root)
}

harmless! {
    exit_during_a_collective_is_not_delayed: Hazard::new("exit_in_collective", 0);
    exit_in_another_thread_is_not_delayed: Hazard::new("exit_in_thread", 9);
    exit_beside_the_loader_is_not_held_up:
        beside_a_loader(Hazard::linked_with("exit_beside_loader.c", &["-Wl,--export-dynamic"], 7));
    exit_beside_the_loader_after_a_call_is_not_held_up:
        beside_a_loader(Hazard::linked_with("exit_beside_loader_later.c", &["-Wl,--export-dynamic"], 0));
    exit_during_an_import_is_not_held_up:
        beside_a_loader(Hazard::script_that_ends("exit_while_importing.py", 1));
    children_without_handlers_end_beside_the_loader: clones();
    a_sandbox_that_traps_calls_is_obeyed: Hazard::linked("sandbox_traps.c", 0);
    a_strict_sandbox_is_not_violated: Hazard::linked("strict_seccomp.c", 3);
    a_strict_sandbox_is_not_violated_by_its_exit: Hazard::linked("strict_seccomp.c", 3).with("_exit");
    a_main_thread_that_ends_is_not_awaited: Hazard::linked("main_leaves.c", 0);
    a_main_thread_that_ends_has_its_exit_handlers: Hazard::new("sig_main_leaves", 0);
    a_main_thread_that_ends_by_the_system_call_gives_its_code: Hazard::linked("ends_by_system_call.c", 5);
    children_without_handlers_end_at_once: Hazard::linked("clones_that_exit.c", 0);
    every_way_to_exit_ends_the_process_once: Hazard::linked("many_exits.c", 0);
    another_root_and_user_change_nothing: nobody();
}
