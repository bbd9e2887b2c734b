//! Unwinding, jumps and exits through the hook, from within a call of the program.

use crate::hazard::Hazard;

pub(crate) const ABORTED: i32 = 6;

harmless! {
    a_thread_that_is_cancelled_while_it_waits_unwinds: Hazard::linked("cancelled.c", 0);
    exceptions_pass_through: Hazard::linked("throws.cpp", 0);
    an_exception_that_nobody_catches_ends_the_program: Hazard::linked("nobody_catches.cpp", 0).by(ABORTED);
    a_thread_may_end_in_a_callback: Hazard::linked("thread_ends_in_callback.c", 0);
    a_jump_out_of_a_callback_works: Hazard::linked("jumps_out.c", 0);
    a_fork_in_a_callback_works: Hazard::linked("forks_in_callback.c", 0);
    an_exit_in_a_callback_works: Hazard::linked("exits_in_callback.c", 8);
    calls_in_callbacks_are_counted: Hazard::linked("calls_in_callback.c", 0);
    backtraces_are_complete: Hazard::linked("backtraces.c", 0).allows("frames", 2);
    calls_at_thread_end_reach_the_library: Hazard::linked("tls_destructor.cpp", 0);
}
