//! Functions looked up by address: `dlsym` answers as without the hook, and calls through the answer are
//! counted.

use crate::{hazard::Hazard, stand_in};

/// The program that asks in every way there is.
fn asks(flags: &[&str]) -> Hazard {
    let hazard = Hazard::linked_with("asks.c", flags, 0);
    let unrelated = hazard.compile("libunrelated.c", "libunrelated.so", &["-shared", "-fPIC"]);
    hazard.with(unrelated)
}

/// The same, with another preload that interposes `dlsym` too.
fn with_another_dlsym(is_first: bool) -> Hazard {
    let mut hazard = asks(&[]);
    let other = hazard.compile("libdlsym.c", "libdlsym.so", &["-shared", "-fPIC"]);
    hazard.others = if is_first { (Some(other), None) } else { (None, Some(other)) };
    hazard
}

/// The program has a `dlsym` of its own, which libraries find too.
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
