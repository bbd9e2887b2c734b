//! Reports what the hook cannot observe.

use xpu_wire::frame::Launches;

use super::Publisher;
use crate::{
    gpu::runtime,
    interpose::{cublaslt, symbol},
    observe::kernels,
    python::optimizer,
};

/// After this many launches, a rank of a job with several ranks should have a communicator with others: a few
/// steps of any model.
const SHOULD_HAVE_COMMUNICATOR: u64 = 2_000;

impl Publisher {
    pub(super) fn blind(&self) -> Vec<String> {
        let communicators = &self.observer.communicators;
        let (unplaced, unknown_frees) = self.observer.allocations.missed();
        let (lost, unseen) = self.observer.graphs.missed();
        let (unnamed, crowded) = kernels::missed();
        let mut blind = self.observer.complaints.clone();
        for (count, what) in [
            (communicators.unknown(), "NCCL calls on communicators whose creation was not seen"),
            (communicators.too_many(), "more communicators than can be watched at once"),
            (communicators.unshown(), "more communicators than the ledger can show"),
            (cublaslt::unreadable(), "cuBLASLt GEMMs whose sizes are not on the host"),
            (lost, "parts of CUDA graphs that could not be distinguished"),
            (unseen, "CUDA graphs with unknown contents: what is in them is not counted"),
            (
                self.fold.conditional_graphs(),
                "launches of CUDA graphs with conditional nodes: the work in their bodies is not counted",
            ),
            (unnamed, "kernels whose names are unknown: that needs CUDA 12.3"),
            (crowded, "launches of kernels beyond those that are counted by name"),
            (unplaced, "more allocations than can be tracked: more memory is held than shown"),
            (unknown_frees, "frees of memory whose allocation was not seen"),
        ] {
            if count > 0 {
                blind.push(format!("{count} {what}"));
            }
        }
        if !self.has_room {
            blind.push(
                "timings are not read: CUDA may need address space, which is limited (RLIMIT_AS)".to_owned(),
            );
        }
        let Launches { gemms, collectives, .. } = self.launches();
        if gemms + collectives > 0 && runtime::is_missing() {
            blind.push(
                "nothing is timed on the GPU: neither the CUDA runtime nor the driver of this process has the functions for it"
                    .to_owned(),
            );
        }
        if runtime::has_other_contexts() {
            blind.push(
                "some GPU work is not timed: the program uses several CUDA contexts of one GPU".to_owned(),
            );
        }
        blind.extend(symbol::LIBRARIES.iter().flat_map(|library| library.complaints()));
        if self.launches().kernels >= SHOULD_HAVE_COMMUNICATOR {
            blind.extend(self.fold.unmatched_kernels().map(|pattern| {
                format!(
                    "no kernel matching '{pattern}' was seen; those of cuDNN's attention and most of NCCL's and cuBLAS's are never seen"
                )
            }));
        }
        blind.extend(self.fold.capture.functions.complaint());
        blind.extend(optimizer::complaint().map(str::to_owned));
        blind.extend(self.observer.optimizers.uneven());
        let is_apart = communicators.unknown() == 0 && communicators.open().next().is_none();
        if self.fold.only_answers() {
            blind.push(
                "no step is detected: only a forward pass repeats, as in an inference server".to_owned(),
            );
        }
        let world = self.identity.info.world_size;
        if is_apart && shares_no_communicator(world, &self.launches()) {
            blind.push(format!(
                "no NCCL call of this rank of {world} was seen: it uses none, or its NCCL is linked statically"
            ));
        }
        blind
    }
}

/// Whether a rank has launched much work but shares no communicator with other ranks.
fn shares_no_communicator(world: u32, launches: &Launches) -> bool {
    let alone = launches.collectives + launches.point_to_point == 0;
    world > 1 && alone && launches.kernels + launches.gemms + launches.graphs >= SHOULD_HAVE_COMMUNICATOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_busy_rank_of_several_is_expected_to_have_a_communicator() {
        let busy = Launches { kernels: 1_500, gemms: 500, ..Launches::default() };
        assert!(shares_no_communicator(2, &busy));
        assert!(!shares_no_communicator(1, &busy));
        assert!(!shares_no_communicator(2, &Launches { collectives: 1, ..busy }));
        assert!(!shares_no_communicator(2, &Launches { kernels: 1_499, ..busy }));
    }
}
