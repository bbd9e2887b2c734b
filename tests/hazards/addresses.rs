//! Functions looked up by address: `dlsym` returns the same as without the hook, and calls through the
//! address are counted.

use crate::{hazard::Hazard, stand_in};

/// A program that calls `dlsym` in every possible way.
fn asks(flags: &[&str]) -> Hazard {
    let hazard = Hazard::linked_with("asks.c", flags, 0);
    let unrelated = hazard.compile("libunrelated.c", "libunrelated.so", &["-shared", "-fPIC"]);
    hazard.with(unrelated)
}

/// The same program with another preload that also interposes `dlsym`.
fn with_another_dlsym(is_first: bool) -> Hazard {
    let mut hazard = asks(&[]);
    let other = hazard.compile("libdlsym.c", "libdlsym.so", &["-shared", "-fPIC"]);
    hazard.others = if is_first { (Some(other), None) } else { (None, Some(other)) };
    hazard
}

/// The same program with its own `dlsym`, which libraries use too.
fn with_own_dlsym() -> Hazard {
    let hazard = asks(&[]);
    let object = hazard.compile("libdlsym.c", "own_dlsym.o", &["-c", "-fPIC"]);
    let flags = [&["-rdynamic", object.to_str().unwrap()], &stand_in::LINKED[..]].concat();
    hazard.compile("asks.c", "program", &flags);
    hazard
}

harmless! {
    questions_are_answered_as_they_were: asks(&[]);
    a_preload_before_the_hook_has_its_dlsym: with_another_dlsym(true);
    a_preload_behind_the_hook_has_its_dlsym: with_another_dlsym(false);
    a_program_has_its_own_dlsym: with_own_dlsym();
    told_not_to_follow_dlsym_is_left_alone: asks(&[]).set("XPU_TOP_DLSYM=0");
}

#[test]
fn nccl_by_ctypes_is_left_as_it_is_and_counted() {
    let heard = Hazard::script("asks_by_ctypes.py").is_harmless_and_heard();
    let collectives: u64 = heard.iter().map(|speaker| speaker.launches().collectives).sum();
    assert_eq!(collectives, 300);
}
