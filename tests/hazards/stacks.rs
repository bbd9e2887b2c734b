//! Small stacks: bounds how much more stack a call may take.

use crate::hazard::Hazard;

/// Bytes that the hook may add to a call.
const BYTES: i64 = 4 << 10;

/// Bytes that the hook may add before the program's own handler.
const HANDLER_BYTES: i64 = 1 << 10;

const SEGMENTATION_FAULT: i32 = 11;

harmless! {
    calls_in_small_threads_fit: Hazard::linked("thread_stacks.c", 0)
        .allows("first of the process, 16 KiB", BYTES)
        .allows("16 KiB", BYTES)
        .allows("32 KiB", BYTES)
        .allows("64 KiB", BYTES);
    calls_in_fibres_fit: Hazard::linked("fibres.c", 0)
        .allows("first of the process", BYTES)
        .allows("first of a thread", BYTES)
        .allows("later", BYTES);
    a_fibre_may_continue_in_another_thread: Hazard::linked("fibre_moves.c", 0);
    calls_in_a_signal_handler_fit: Hazard::linked("calls_in_handler.c", 0).allows("first call", BYTES);
    an_alternate_stack_that_sufficed_suffices:
        Hazard::linked("small_alternate_stack.c", 0).by(SEGMENTATION_FAULT).allows("alternate stack", HANDLER_BYTES);
    a_huge_limit_of_the_stack_costs_nothing:
        Hazard::linked("unlimited_stack.c", 0).allows("KiB mapped", 16 << 10);
}
