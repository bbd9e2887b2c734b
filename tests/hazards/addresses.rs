//! Functions looked up by address: `dlsym` returns the same as without the hook, and calls through the
//! address are counted.

use crate::{hazard::Hazard, stand_in};

/// A program that calls `dlsym` in every possible way.
fn looks_up(flags: &[&str]) -> Hazard {
    let hazard = Hazard::linked_with("looks_up.c", flags, 0);
    let unrelated = hazard.compile("libunrelated.c", "libunrelated.so", &["-shared", "-fPIC"]);
    hazard.with(unrelated)
}

/// The same program with another preload that also interposes `dlsym`.
fn with_another_dlsym(is_first: bool) -> Hazard {
    let mut hazard = looks_up(&[]);
    let other = hazard.compile("libdlsym.c", "libdlsym.so", &["-shared", "-fPIC"]);
    hazard.others = if is_first { (Some(other), None) } else { (None, Some(other)) };
    hazard
}

/// The same program with its own `dlsym`, which libraries use too.
fn with_own_dlsym() -> Hazard {
    let hazard = looks_up(&[]);
    let object = hazard.compile("libdlsym.c", "own_dlsym.o", &["-c", "-fPIC"]);
    let flags = [&["-rdynamic", object.to_str().unwrap()], &stand_in::LINKED[..]].concat();
    hazard.compile("looks_up.c", "program", &flags);
    hazard
}

harmless! {
    dlsym_answers_as_without_the_hook: looks_up(&[]);
    a_preload_before_the_hook_has_its_dlsym: with_another_dlsym(true);
    a_preload_behind_the_hook_has_its_dlsym: with_another_dlsym(false);
    a_program_has_its_own_dlsym: with_own_dlsym();
    xpu_top_dlsym_0_leaves_dlsym_unchanged: looks_up(&[]).set("XPU_TOP_DLSYM=0");
}

#[test]
fn nccl_by_ctypes_is_counted_and_not_changed() {
    let received = Hazard::script("asks_by_ctypes.py").is_harmless_and_observed();
    let collectives: u64 = received.iter().map(|sender| sender.launches().collectives).sum();
    assert_eq!(collectives, 300);
}
