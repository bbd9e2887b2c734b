//! Finds the operation, timed by the hook, that launched a kernel recorded by CUPTI. CUPTI did not record the
//! calls.

use std::collections::BTreeMap;

use xpu_analysis::capture::{Kind, Single};
use xpu_wire::frame::CapturedSpan;

/// Operations by stream, in order of their start on the GPU.
#[derive(Debug, Default)]
pub(super) struct Launches<'a>(BTreeMap<u32, Vec<(u64, u64, &'a Single)>>);

impl<'a> Launches<'a> {
    pub(super) fn of(operations: &'a [Single]) -> Self {
        let mut streams: BTreeMap<u32, Vec<_>> = BTreeMap::new();
        for single in operations {
            if let (true, CapturedSpan::Gpu { stream, .. }, Some((from, to))) =
                (is_launch(single), single.span, single.on_gpu())
            {
                streams.entry(stream).or_default().push((from.0, to.0, single));
            }
        }
        for of in streams.values_mut() {
            of.sort_by_key(|&(from, ..)| from);
        }
        Self(streams)
    }

    /// The operation in which a kernel ran, by the kernel's middle, because events and CUPTI have separate
    /// clocks.
    pub(super) fn that_launched(&self, kernel: &Single) -> Option<&'a Single> {
        let CapturedSpan::Gpu { stream, .. } = kernel.span else { return None };
        let (from, to) = kernel.on_gpu()?;
        let middle = from.0.midpoint(to.0);
        let of = self.0.get(&stream)?;
        let next = of.partition_point(|&(begin, ..)| begin <= middle);
        let (_, end, single) = *of[..next].last()?;
        (middle <= end).then_some(single)
    }
}

/// Operations that run kernels, as the hook sees them.
pub(super) fn is_launch(single: &Single) -> bool {
    matches!(
        single.kind(),
        Kind::Gemm | Kind::Collective | Kind::PointToPoint | Kind::Group | Kind::Graph | Kind::Kernel
    )
}
