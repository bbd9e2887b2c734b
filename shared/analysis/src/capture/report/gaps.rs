//! Why a GPU did nothing: the classes of Holistic Trace Analysis's idle time, for the GPU as a whole.

use serde::Serialize;
use xpu_wire::unit::Moment;

use super::{
    super::{RankCapture, Single, WholeStep},
    Busy,
};

/// Longest gap that counts as time between two kernels, if its next operation had been launched before.
const BETWEEN: u64 = 30_000;

/// Largest difference with which times of two clocks count as equal.
const BLUR: u64 = 2_000;

/// The sum is [`super::Summary::gap_ns`], or zero for a rank without any GPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Gaps {
    /// The next operation was launched only after the gap had begun: the GPU waited for its host.
    pub host_ns: u64,
    /// The next operation had been launched before, and the gap is shorter than 30 us: the time between two
    /// kernels.
    pub kernel_ns: u64,
    /// The next operation had been launched before, and waited for something else: another stream, a copy,
    /// another rank.
    pub other_ns: u64,
    /// The launch time of the next operation is unknown: it is a kernel recorded by CUPTI that belongs to no
    /// timed operation.
    pub unknown_ns: u64,
}

impl Gaps {
    pub(super) fn of<'a>(
        rank: &RankCapture,
        busy: &Busy,
        steps: impl Iterator<Item = WholeStep<'a>>,
    ) -> Self {
        if !busy.is_any() {
            return Self::default();
        }
        // Launches of timed operations, by their start on the GPU.
        let mut launches: Vec<_> = rank.operations.iter().filter_map(launched).collect();
        launches.sort_unstable();
        let mut gaps = Self::default();
        for step in steps {
            for (from, to) in busy.gaps(step.on_gpu.0, step.on_gpu.1) {
                let sum = gaps.class(&launches, from, to, step.on_gpu.1);
                *sum = sum.saturating_add(to.0 - from.0);
            }
        }
        gaps
    }

    fn class(&mut self, launches: &[(Moment, Moment)], from: Moment, to: Moment, end: Moment) -> &mut u64 {
        let near = launches.partition_point(|(begin, _)| begin.0.saturating_add(BLUR) < to.0);
        let next = launches.get(near).filter(|(begin, _)| begin.0 <= to.0.saturating_add(BLUR));
        match next {
            // The step ends with a gap, so the next operation is in no step.
            None if to == end => match launches.get(near) {
                Some((_, at)) if *at > from => &mut self.host_ns,
                Some(_) => &mut self.other_ns,
                None => &mut self.unknown_ns,
            },
            None => &mut self.unknown_ns,
            Some((_, at)) if *at > from => &mut self.host_ns,
            Some(_) if to.0 - from.0 < BETWEEN => &mut self.kernel_ns,
            Some(_) => &mut self.other_ns,
        }
    }
}

/// When it started on the GPU, and when it was launched.
fn launched(single: &Single) -> Option<(Moment, Moment)> {
    if single.is_launch_unknown() {
        return None;
    }
    Some((single.on_gpu()?.0, single.at))
}

#[cfg(test)]
mod tests {
    use xpu_wire::frame::{
        Body, Frame,
        example::capture::{BEGIN, part, sheet},
    };

    use super::*;
    use crate::capture::{Capture, Report};

    #[test]
    fn gaps_add_up_to_the_whole() {
        let mut capture = Capture::default();
        for body in [Body::CaptureSheet(sheet(&[0])), Body::CapturePart(part(0, 0))] {
            capture.take(&Frame { host: "a".into(), number: 0, now: Moment(BEGIN), lost: 0, body });
        }
        let report = Report::of(&capture);
        let rank = &report.ranks[0];
        let Gaps { host_ns, kernel_ns, other_ns, unknown_ns } = rank.gaps;
        assert_eq!(host_ns + kernel_ns + other_ns + unknown_ns, rank.summary.gap_ns);
        assert!(
            host_ns > 0,
            "the second step's GEMM is launched when the GPU is done already: {:?}",
            rank.gaps
        );
    }

    #[test]
    fn the_late_side_decides_the_cause_of_a_gap() {
        let ms = |ms: u64| Moment(ms * 1_000_000);
        let class = |launch, gap: (Moment, Moment)| {
            let mut gaps = Gaps::default();
            *gaps.class(&[(gap.1, launch)], gap.0, gap.1, ms(100)) += 1;
            gaps
        };
        let gap = (ms(10), ms(12));
        assert_eq!(class(ms(11), gap).host_ns, 1);
        assert_eq!(class(ms(9), gap).other_ns, 1);
        assert_eq!(class(ms(9), (ms(10), Moment(10_010_000))).kernel_ns, 1);
        let mut gaps = Gaps::default();
        *gaps.class(&[(ms(50), ms(40))], gap.0, gap.1, ms(100)) += 1;
        assert_eq!(gaps.unknown_ns, 1);
    }
}
