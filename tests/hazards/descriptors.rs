//! Programs that close, replace or pass on the hook's descriptors, without a call that the hook intercepts.

use crate::hazard::Hazard;

harmless! {
    training_continues_without_descriptors: Hazard::new("few_descriptors", 0);
    descriptors_may_be_closed_and_used_again: Hazard::linked("closes_descriptors.c", 0);
    descriptors_may_be_put_over_any_other: Hazard::linked("duplicates_over.c", 0);
    nothing_takes_the_place_of_closed_stdio: Hazard::linked("closed_stdio.c", 3);
    nothing_is_inherited_by_exec: Hazard::linked("counts_descriptors.c", 0);
}
