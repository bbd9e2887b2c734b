//! Signals: the program's handlers are unchanged, and the program's threads receive its signals.

use crate::{hazard::Hazard, unwinding::ABORTED};

harmless! {
    signals_reach_the_programs_own_threads: Hazard::new("signals", 0);
    handlers_that_call_the_one_before_them_save_their_checkpoint: Hazard::linked("chained_handlers.c", 0);
    handlers_set_in_place_of_the_default_are_called: Hazard::linked("polite_handlers.c", 0);
    signals_without_a_handler_have_their_default_action: Hazard::linked("default_actions.c", 0);
    sigaction_returns_the_programs_action: Hazard::linked("actions_shown.c", 0);
    signals_read_from_a_descriptor_reach_the_reader: Hazard::linked("reads_signals.c", 0);
    ignored_children_are_reaped_by_the_kernel: Hazard::linked("ignores_children.c", 0);
    calls_are_interrupted_as_without_the_hook: Hazard::linked("interrupted_calls.c", 0);
    handled_faults_stay_handled: Hazard::linked("mends_faults.c", 0).with("1").with("40");
    floating_point_exceptions_that_trap_end_no_thread: Hazard::linked_with("float_traps.c", &["-lm"], 0);
    a_watchdog_that_jumps_out_of_first_calls_leaves_no_lock: Hazard::linked("watchdog_jumps.c", 0);
    calls_in_a_handler_that_interrupts_dlclose_succeed: Hazard::linked("calls_during_dlclose.c", 0);
    replaced_modules_and_forbidden_imports_raise_nothing: Hazard::script("restricts_python.py");
    lookups_of_replaced_modules_raise_nothing: Hazard::script("restricts_python.py").with("lookups");
    pythons_exception_hooks_are_unchanged: Hazard::script("hooks_of_python.py");
    a_thread_that_was_cancelled_may_abort: Hazard::linked("cancelled_and_aborts.c", 0).by(ABORTED);
    a_handler_whose_stack_is_unmapped_is_not_unwound: Hazard::linked("stack_of_handler_goes.c", 4);
    messages_of_exceptions_are_formatted_once: Hazard::script_that_ends("message_is_made_once.py", 1);
    an_exhausted_python_stack_is_handled_as_without_the_hook: Hazard::script("little_recursion.py");
    python_exceptions_end_the_program_as_without_the_hook: Hazard::script_that_ends("raises.py", 1);
}
