//! Signals: the program's handlers are unchanged, and the program's threads receive its signals.

use crate::{hazard::Hazard, unwinding::ABORTED};

harmless! {
    signals_reach_the_programs_own_threads: Hazard::new("signals", 0);
    handlers_that_call_the_one_before_them_save_their_checkpoint: Hazard::linked("chained_handlers.c", 0);
    handlers_set_where_nobody_has_one_are_set: Hazard::linked("polite_handlers.c", 0);
    signals_without_a_handler_do_what_they_do: Hazard::linked("default_actions.c", 0);
    what_sigaction_shows_is_the_programs: Hazard::linked("actions_shown.c", 0);
    signals_that_are_read_come_to_who_reads: Hazard::linked("reads_signals.c", 0);
    children_that_are_ignored_are_nobodys: Hazard::linked("ignores_children.c", 0);
    calls_that_are_interrupted_are_the_programs_own: Hazard::linked("interrupted_calls.c", 0);
    faults_that_are_mended_stay_so: Hazard::linked("mends_faults.c", 0).with("1").with("40");
    hooks_of_python_are_pythons: Hazard::script("hooks_of_python.py");
    a_thread_that_was_cancelled_may_abort: Hazard::linked("cancelled_and_aborts.c", 0).by(ABORTED);
    a_handler_whose_stack_is_gone_is_not_looked_for: Hazard::linked("stack_of_handler_goes.c", 4);
    messages_of_exceptions_are_made_once: Hazard::script_that_ends("message_is_made_once.py", 1);
    a_stack_of_python_that_is_used_up_is_nobodys: Hazard::script("little_recursion.py");
    exceptions_of_python_end_it_as_they_would: Hazard::script_that_ends("raises.py", 1);
}
