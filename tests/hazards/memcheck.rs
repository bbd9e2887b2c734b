//! The hook under valgrind, with programs that do only what valgrind supports.

use xpu_tests::{built, program::run};

use crate::{
    collector::{Collector, under},
    hazard::Hazard,
    runtimes,
};

/// Valgrind reports errors on stderr and by exit code 99, and these programs do neither themselves. Valgrind
/// needs threads and address space, so the programs that run short of them are not here.
#[test]
#[ignore = "needs valgrind, and a minute: make memcheck"]
fn memcheck_finds_no_error() {
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
    let linked = [
        ("cancelled.c", 0),
        ("throws.cpp", 0),
        ("thread_ends_in_callback.c", 0),
        ("jumps_out.c", 0),
        ("jumps_from_handlers.c", 0),
        ("forks_in_callback.c", 0),
        ("exits_in_callback.c", 8),
        ("calls_in_callback.c", 0),
        ("tls_destructor.cpp", 0),
        ("keeps_dlerror.c", 0),
        ("keeps_errno.c", 0),
        ("actions_shown.c", 0),
        ("many_exits.c", 0),
        ("main_leaves.c", 0),
        ("closes_descriptors.c", 0),
    ];
    let programs = programs.map(|(name, code)| (name, Hazard::new(name, code)));
    let linked = linked.map(|(name, code)| (name, Hazard::linked(name, code)));
    for (name, hazard) in programs.into_iter().chain(linked).chain(runtimes::checked()) {
        let alone = run(hazard.place.command(&hazard.program).args(&hazard.arguments));
        let hooks = built::hooks();
        let collectors = [Collector::Listens, Collector::Dies];
        for (hook, collector) in hooks.iter().flat_map(|hook| collectors.map(|collector| (hook, collector))) {
            let mut command = hazard.place.watched_by(hook, "valgrind");
            command.args(["-q", "--trace-children=yes", "--fair-sched=yes", "--error-exitcode=99"]);
            let (checked, _) =
                under(collector, &hazard.place, command.arg(&hazard.program).args(&hazard.arguments));
            assert_eq!(checked.outcome.as_ref(), Some(&alone), "{name}, {collector:?}, {}", hook.display());
        }
    }
}
