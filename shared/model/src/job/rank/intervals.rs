//! The increments of a rank's last digests, from which rates are computed. With ten thousand ranks, this is
//! most of a viewer's memory, so nothing is stored twice.

use std::collections::VecDeque;

use xpu_wire::{
    frame::{Progress, RankDigest},
    unit::{Moment, Nanoseconds},
};

use super::{RATES, push_bounded};

/// Digests over which rates are computed.
pub(super) const WINDOW: usize = Progress::WINDOW;

/// Capacity that is kept for earlier totals.
const FEW: usize = 4;

/// Number of digests with progress that are kept, even if they are old.
const ACTIVE: usize = WINDOW + 1;

/// The increments of one digest.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    pub(super) progress: Progress,
    /// Launched since the rank started.
    pub(super) collectives: u64,
    /// All FLOPs since the rank started; those timed in this digest.
    pub(super) arithmetic: f64,
    pub(super) gemm_flops: f64,
    pub(super) gemm_time: Nanoseconds,
    /// What this digest adds to [`RankDigest::graphs_for`], in seconds, and to [`RankDigest::graphs_flops`].
    pub(super) in_graphs: (f32, f32),
    /// Whether the rank made progress, or timed a GEMM. While it hangs, no new rates are known.
    pub(super) active: bool,
}

impl Interval {
    pub(super) fn between(before: Option<&RankDigest>, digest: &RankDigest) -> Self {
        let timed = |digest: &RankDigest| (digest.gemm_timed_flops, digest.gemm_timed_for.0);
        let ((flops, time), (flops_before, time_before)) = (timed(digest), before.map_or((0.0, 0), timed));
        // If totals decreased, the rank has restarted.
        let began_anew = flops < flops_before || time < time_before;
        let (gemm_flops, gemm_time) =
            if began_anew { (0.0, 0) } else { (flops - flops_before, time - time_before) };
        let graphs = |digest: &RankDigest| (digest.graphs_for.seconds(), digest.graphs_flops);
        let ((in_graphs, flops_in_graphs), (in_graphs_before, flops_in_graphs_before)) =
            (graphs(digest), graphs(before.unwrap_or(digest)));
        let more = |now: f64, before: f64| (now - before).max(0.0) as f32;
        Self {
            progress: Progress::of(digest),
            collectives: digest.launches.collectives,
            arithmetic: digest.gemm_flops,
            gemm_flops,
            gemm_time: Nanoseconds(gemm_time),
            in_graphs: (more(in_graphs, in_graphs_before), more(flops_in_graphs, flops_in_graphs_before)),
            active: false,
        }
    }

    pub(super) fn without_figures(self) -> Self {
        Self { gemm_flops: 0.0, gemm_time: Nanoseconds(0), in_graphs: (0.0, 0.0), ..self }
    }

    fn activity(&self) -> Activity {
        let Self { progress, arithmetic, gemm_flops, gemm_time, .. } = *self;
        let Progress { heard, blocked_for, .. } = progress;
        Activity { heard, arithmetic, gemm_flops, gemm_time, blocked_for }
    }
}

/// Data of a digest with progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Activity {
    pub(super) heard: Moment,
    pub(super) arithmetic: f64,
    pub(super) gemm_flops: f64,
    pub(super) gemm_time: Nanoseconds,
    pub(super) blocked_for: Nanoseconds,
}

#[derive(Debug, Default)]
pub(super) struct Intervals {
    window: VecDeque<Interval>,
    /// Its totals before these intervals, back to the start of the half minute.
    before: VecDeque<Progress>,
    /// Number of intervals with progress in the window, and the kept ones before them.
    active: usize,
    active_before: VecDeque<Activity>,
}

impl Intervals {
    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty() && self.window.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.window.len()
    }

    /// Its totals before the first local digest, oldest first.
    pub(super) fn begin_with(&mut self, earlier: &[Progress]) {
        if self.before.is_empty() {
            let first = self.window.front().map_or(Moment(u64::MAX), |first| first.progress.heard);
            let earlier = &earlier[..earlier.partition_point(|progress| progress.heard < first)];
            self.before.extend(&earlier[earlier.len().saturating_sub(WINDOW)..]);
        }
    }

    pub(super) fn take(&mut self, interval: Interval) {
        if self.window.len() == WINDOW
            && let Some(oldest) = self.window.pop_front()
        {
            self.before.push_back(oldest.progress);
            if oldest.active {
                self.active -= 1;
                push_bounded(&mut self.active_before, oldest.activity(), ACTIVE);
            }
        }
        push_bounded(&mut self.window, interval, WINDOW);
        // The half minute starts at the last totals outside of it.
        let begins = Moment(interval.progress.heard.0.saturating_sub(RATES.as_nanos() as u64));
        let within = self.before.iter().position(|progress| progress.heard > begins);
        self.before.drain(..within.unwrap_or(self.before.len()).saturating_sub(1));
        self.before.shrink_to(FEW);
        self.active += usize::from(interval.active);
        if self.active + self.active_before.len() > ACTIVE {
            self.active_before.pop_front();
        }
    }

    /// Forgets figures, because nothing was timed in the half minute.
    pub(super) fn forget_figures(&mut self) {
        self.window.iter_mut().for_each(|interval| *interval = interval.without_figures());
    }

    /// The last half minute, oldest first.
    pub(super) fn window(&self) -> impl ExactSizeIterator<Item = &Interval> + DoubleEndedIterator {
        self.window.iter()
    }

    /// Its totals at the start of the half minute, and after each digest in it.
    pub(super) fn progress(&self) -> impl DoubleEndedIterator<Item = &Progress> {
        self.before.iter().chain(self.window.iter().map(|interval| &interval.progress))
    }

    /// The digests with progress, oldest first.
    pub(super) fn active(&self) -> impl DoubleEndedIterator<Item = Activity> {
        let within = self.window.iter().filter(|interval| interval.active).map(Interval::activity);
        self.active_before.iter().copied().chain(within)
    }

    /// The first and the last interval of the half minute.
    pub(super) fn ends(&self) -> Option<(&Interval, &Interval)> {
        Some((self.window.front()?, self.window.back()?))
    }
}
