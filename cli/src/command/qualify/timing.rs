//! The duration and number of repeats of a measurement.

use crate::gpu::device::{Gpu, Plan, median};

/// Seconds between two events. In this time, a GPU switches several times between processes, so each block
/// shows the load of another process.
const BLOCK: f64 = 0.01;

/// Smallest number of blocks, however long one takes.
const FEWEST: usize = 3;

/// Largest number of repeats of the work in one block, because the launch queue is limited.
const MOST: f64 = 500.0;

/// Seconds that one measurement takes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing {
    pub warm: f64,
    pub timed: f64,
}

impl Timing {
    pub(super) fn of(quick: bool) -> Self {
        if quick { Self { warm: 0.02, timed: 0.05 } } else { Self { warm: 0.05, timed: 0.2 } }
    }

    /// For each block, the seconds of one repeat.
    pub(super) fn measure(
        self,
        gpu: &mut Gpu,
        work: impl Fn(&Gpu, u64) -> Result<(), String>,
    ) -> Result<Vec<f64>, String> {
        // The first runs load code, so the estimate is made after two runs.
        gpu.times(Plan { warm: 2, blocks: 0, each: 0 }, &work)?;
        let one = median(gpu.times(Plan { warm: 0, blocks: 3, each: 1 }, &work)?).max(1e-6);
        let plan = self.plan(one);
        let times = gpu.times(plan, &work)?;
        Ok(times.into_iter().map(|seconds| seconds / plan.each as f64).collect())
    }

    fn plan(self, one: f64) -> Plan {
        let each = (BLOCK / one).clamp(1.0, MOST).round();
        let blocks = ((self.timed / (each * one)).round() as usize).max(FEWEST);
        let blocks = blocks.min((self.timed / BLOCK).round() as usize);
        Plan { warm: (self.warm / one).clamp(1.0, MOST) as usize, blocks, each: each as usize }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_lasts_ten_milliseconds_or_once() {
        let plan = |one| {
            let Plan { warm, blocks, each } = Timing::of(false).plan(one);
            (warm, blocks, each)
        };
        assert_eq!(plan(0.001), (50, 20, 10));
        assert_eq!(plan(0.1), (1, 3, 1));
        assert_eq!(plan(1e-6), (500, 20, 500));
        assert_eq!(Timing::of(true).plan(0.001).blocks, 5);
    }
}
