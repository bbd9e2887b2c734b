//! The counts that the collector receives of programs, which behave as without the hook.

use xpu_tests::listener::Sender;
use xpu_wire::frame::Launches;

use crate::{hazard::Hazard, stand_in::LINKED};

/// How many calls of a thread pass before the hook notices that an earlier call was left by a jump.
const UNNOTICED: u64 = 3;

fn sum(received: &[Sender], of: impl Fn(&Launches) -> u64) -> u64 {
    received.iter().map(|sender| of(&sender.launches())).sum()
}

#[test]
fn a_plain_program_behaves_as_without_the_hook() {
    let received = Hazard::new("plain_gemm", 7).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 500);
    assert_eq!(received.len(), 1);
}

/// The other preload comes before the hook or behind it.
pub(crate) fn second_preload(is_first: bool) -> Hazard {
    let mut hazard = Hazard::new("second_preload", 0);
    let other = hazard.compile("libcounter.c", "libcounter.so", &["-shared", "-fPIC"]);
    hazard.others = if is_first { (Some(other), None) } else { (None, Some(other)) };
    hazard
}

#[test]
fn another_preload_sees_every_call_in_either_order() {
    for is_first in [true, false] {
        let received = second_preload(is_first).is_harmless_and_observed();
        assert_eq!(sum(&received, |launches| launches.gemms), 100, "first: {is_first}");
        assert_eq!(sum(&received, |launches| launches.kernels), 70, "first: {is_first}");
        assert_eq!(sum(&received, |launches| launches.collectives), 30, "first: {is_first}");
    }
}

#[test]
fn a_thread_that_jumped_out_of_a_call_is_observed_as_before() {
    let mut hazard = Hazard::linked("jumps_from_handlers.c", 0);
    let received = hazard.is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 1_100);
    // Behind a preload with the same functions, every call looks like one that a library makes itself, within
    // the call that was left.
    let other = hazard.compile("libcounter.c", "libcounter.so", &["-shared", "-fPIC"]);
    hazard.others = (Some(other), None);
    let received = hazard.is_harmless_and_observed();
    let gemms = sum(&received, |launches| launches.gemms);
    assert!((1_100 - 4 * UNNOTICED..=1_100).contains(&gemms), "{gemms}");
}

#[test]
fn the_first_call_is_observed_though_the_hooks_thread_gets_no_core() {
    let hazard = Hazard::linked_with("thread_starts_late.c", &["-rdynamic", "-ldl"], 0);
    let received = hazard.is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.collectives), 30);
}

#[test]
fn streams_that_come_and_go_are_all_observed() {
    let received = Hazard::new("streams_come_and_go", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 5000);
    assert_eq!(sum(&received, |launches| launches.collectives), 5000);
}

#[test]
fn calls_at_exit_reach_the_library() {
    let received = Hazard::new("atexit_calls", 6).is_harmless_and_observed();
    assert!(sum(&received, |launches| launches.gemms) >= 20);
}

pub(crate) fn dlopen_local() -> Hazard {
    let hazard = Hazard::new("dlopen_local", 0);
    let caller =
        hazard.compile("libcaller.c", "libcaller.so", &[&["-shared", "-fPIC"][..], &LINKED].concat());
    hazard.with(caller)
}

#[test]
fn libraries_opened_locally_are_found() {
    let received = dlopen_local().is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 100);
    assert_eq!(sum(&received, |launches| launches.collectives), 4, "ncclBcast counts once");
}

#[test]
fn no_context_is_made_on_another_ranks_device() {
    let received = Hazard::new("foreign_context", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 150);
}

#[test]
fn errors_pass_through() {
    let received = Hazard::new("error_passes_through", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 901, "what the library refused was not launched");
}

#[test]
fn a_graph_capture_in_progress_is_not_invalidated() {
    let received = Hazard::new("capture_in_progress", 0).is_harmless_and_observed();
    assert_eq!(
        sum(&received, |launches| launches.gemms),
        3 * (2000 + 3 * 200),
        "three launches of what was captured"
    );
    assert_eq!(sum(&received, |launches| launches.captured), 3 * 200);
    assert_eq!(sum(&received, |launches| launches.graphs), 9);
}

#[test]
fn failed_graph_captures_fail_as_without_the_hook() {
    let received = Hazard::new("captures_that_fail", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 4 + 3 * 10, "what was captured in vain never ran");
    assert_eq!(sum(&received, |launches| launches.kernels), 3);
    assert_eq!(sum(&received, |launches| launches.graphs), 3);
    let blind = &received[0].summaries.last().unwrap().hook.blind;
    assert_eq!(blind[..], [""; 0], "a free that was refused freed nothing");
}

#[test]
fn ranks_forked_before_any_call_are_separate() {
    let received = Hazard::new("two_ranks", 0).is_harmless_and_observed();
    assert_eq!(received.len(), 2);
    for rank in &received {
        assert_eq!(rank.launches().collectives, 50 + 2 + 1 + 1);
        assert_eq!(rank.launches().point_to_point, 50 * 12 + 50);
    }
}

#[test]
fn threads_that_come_and_go_are_observed_or_counted_as_not() {
    let received = Hazard::new("threads_come_and_go", 0).is_harmless_and_observed();
    let unobserved =
        received.iter().filter_map(|sender| Some(sender.summaries.last()?.hook.dropped_records)).sum::<u64>();
    let observed = sum(&received, |launches| launches.gemms + launches.kernels);
    // Each thread also makes other calls. Those without a lane are unobserved too.
    assert!(observed <= 20_000 && observed + unobserved >= 20_000, "{observed} and {unobserved}");
}

#[test]
fn faults_that_the_program_handles_are_not_changed() {
    let received = Hazard::new("recovers_from_faults", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 3);
}

#[test]
fn the_switch_works_at_any_moment() {
    let received = Hazard::new("switched_while_used", 0).is_harmless_and_observed();
    assert!(sum(&received, |launches| launches.gemms) > 0);
}

#[test]
fn calls_by_a_handle_count_as_those_by_name() {
    let received = Hazard::new("by_handle", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 50);
    assert_eq!(sum(&received, |launches| launches.collectives), 150);
    assert_eq!(received[0].summaries.last().unwrap().hook.blind[..], [""; 0]);
}

#[test]
fn unfollowed_calls_by_a_handle_are_reported_as_unseen() {
    let received = Hazard::new("by_handle", 0).set("XPU_TOP_DLSYM=0").is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.gemms), 50);
    assert_eq!(sum(&received, |launches| launches.collectives), 0);
    let blind = &received[0].summaries.last().unwrap().hook.blind;
    assert_eq!(blind[..], ["100 NCCL calls on communicators whose creation was not seen"]);
}

#[test]
fn handles_are_not_read_from_freed_variables() {
    let received = Hazard::new("places_that_go", 0).is_harmless_and_observed();
    // The first collective of each round is counted. The collectives of communicators created in NCCL's
    // thread, whose variables are gone, may not be counted.
    let collectives = sum(&received, |launches| launches.collectives);
    assert!((50..=100).contains(&collectives), "{collectives}");
}

#[test]
fn refused_communicators_stay_refused() {
    let received = Hazard::new("refused_communicators", 0).is_harmless_and_observed();
    assert_eq!(sum(&received, |launches| launches.collectives), 1);
    assert!(received[0].summaries.last().unwrap().hook.blind[0].ends_with("whose creation was not seen"));
}

#[test]
fn fork_child_starts_clean() {
    let received = Hazard::new("fork_child_uses_gpu_not", 0).is_harmless_and_observed();
    assert_eq!(received.len(), 1, "the children did nothing worth saying");
    assert_eq!(sum(&received, |launches| launches.gemms), 251);
}

#[test]
fn forked_workers_that_use_the_gpu_each_have_their_own_observer() {
    let run = || {
        let received = Hazard::new("fork_child_uses_gpu", 0).is_harmless_and_observed();
        let mut gemms: Vec<_> = received.iter().map(|sender| sender.launches().gemms).collect();
        gemms.sort_unstable();
        gemms
    };
    // At its end a process waits at most 250 ms until its last summary is sent. On a busy machine that may be
    // too short.
    let all_said = |gemms: &Vec<u64>| gemms.len() >= 4 && gemms.iter().sum::<u64>() >= 250;
    let mut gemms = (0..4).map(|_| run()).find(all_said).expect("every process to be observed to its end");
    // CUDA refused the GEMM of the fourth child.
    assert_eq!(gemms.split_off(gemms.len() - 4), [50, 50, 50, 100]);
    assert!(gemms.iter().all(|&gemms| gemms == 0), "{gemms:?}");
}

#[test]
fn data_loader_processes_are_not_observed() {
    let received = Hazard::script("data_loaders.py").is_harmless_and_observed();
    let mut gemms: Vec<_> = received.iter().map(|sender| sender.launches().gemms).collect();
    gemms.sort_unstable();
    assert_eq!(gemms, [40, 40, 40, 10 + 3 * 40 + 3 * 40 + 3], "only who uses the GPU has something to say");
}
