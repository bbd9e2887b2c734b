//! Ranks with more FLOPs than the others, in a job where all should have the same.

use super::super::{
    cohort::{SPREADS, spread},
    evidence::slow::{MoreWork, Rates},
};
use super::{
    COHORT, Class, Confidence, Evidence, Finding, Growth, LATE_BY_COMPUTE, Member, Rank, SLOW, cost,
    describe, excess, median, slow_ranks, usual_skew,
};

/// Share by which a rank's work must exceed that of the others, in addition to [`SPREADS`], to be more. It is
/// the share by which a GPU counts as slow.
const MORE: f64 = 1.0 - SLOW;

/// Numbers of digests over which FLOPs are compared: several, because few long steps end in one digest. The
/// work must be larger in both halves. In the smallest number, each half has [`super::PERSISTENT`] digests;
/// each following number is twice the previous one.
pub(crate) const DIGESTS: [usize; 3] = [6, 12, 24];

/// All digests, their later half and their earlier half: the number left out, and the number used.
pub(crate) const fn spans(digests: usize) -> [(usize, usize); 3] {
    let half = digests / 2;
    [(0, digests), (0, half), (half, half)]
}

/// Number of steps by which ranks may differ, because digests begin and end within a step.
const BLUR: f64 = 2.0;

/// A rank with more work.
pub(super) struct Busy<'a> {
    pub member: &'a Member<'a>,
    /// Its FLOPs as a multiple of the others'.
    times: f64,
}

/// Ranks with more work in every step. Empty if that may be intended: experts, and stages of a pipeline.
pub(super) fn busier<'a>(cohorts: &'a [Vec<Member<'a>>]) -> Vec<Busy<'a>> {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    if all.len() < COHORT || !is_data_parallel(&all) {
        return Vec::new();
    }
    let mut found: Vec<Busy<'a>> = Vec::new();
    for span in 0..DIGESTS.len() {
        let known = more_than_others(&all, span).into_iter();
        found.extend(
            known
                .filter(|busy| found.iter().all(|known| known.member.rank != busy.member.rank))
                .collect::<Vec<_>>(),
        );
    }
    found.sort_by_key(|busy| busy.member.rank);
    found
}

/// Whether all have the same communicators, and none sends to one rank alone or distributes tokens.
fn is_data_parallel(all: &[&Member<'_>]) -> bool {
    let first = all[0].shared.as_ref().filter(|shared| !shared.is_empty());
    first.is_some() && all.iter().all(|member| member.shared.as_ref() == first)
}

/// The median of all ranks over some digests, and the spread; only if known for all ranks.
struct Usual {
    /// Index of the digests, and of the part of them.
    span: usize,
    part: usize,
    work: f64,
    spread: f64,
}

impl Usual {
    fn of(all: &[&Member<'_>], span: usize, part: usize) -> Option<Self> {
        let works: Option<Vec<f64>> =
            all.iter().map(|member| Some(member.arithmetic[span][part]?.0)).collect();
        let works = works?;
        let work = median(works.clone())?;
        Some(Self { span, part, work, spread: spread(works.iter().map(|one| one / work - 1.0)) })
    }

    /// A rank's work as a multiple of that median, if the difference is significant.
    fn more(&self, member: &Member<'_>) -> Option<f64> {
        let (own, seconds) = member.arithmetic[self.span][self.part]?;
        let step = member.pace?.max(member.view.longest_step().unwrap_or_default());
        let least = (MORE + BLUR * step.seconds() / seconds).max(SPREADS * self.spread);
        Some(own / self.work).filter(|times| times - 1.0 > least)
    }
}

fn more_than_others<'a>(all: &[&'a Member<'a>], span: usize) -> Vec<Busy<'a>> {
    let [Some(whole), Some(later), Some(earlier)] = [0, 1, 2].map(|part| Usual::of(all, span, part)) else {
        return Vec::new();
    };
    let busy = |&member: &&'a Member<'a>| {
        let times = whole.more(member)?;
        later.more(member).and_then(|_| earlier.more(member)).map(|_| Busy { member, times })
    };
    all.iter().filter_map(busy).collect()
}

/// The finding about ranks for which the others wait because of more work.
pub(super) fn finding(
    cohorts: &[Vec<Member<'_>>],
    busy: &[Busy<'_>],
    beside: &[Rank],
    growth: Option<&Growth>,
) -> Option<Finding> {
    let all = || cohorts.iter().flatten();
    let on_time = usual_skew(all());
    let usual = median(all().filter_map(|member| member.rate).collect())?;
    let is_waited_for = |busy: &&Busy<'_>| {
        let late = excess(busy.member, on_time).is_some_and(|late| late > LATE_BY_COMPUTE);
        late && busy.member.always_last && busy.member.rate.is_some_and(|rate| rate > SLOW * usual)
    };
    let late: Vec<_> = busy.iter().filter(is_waited_for).collect();
    let worst = late.iter().max_by(|a, b| a.times.total_cmp(&b.times))?;
    let ranks: Vec<Rank> = late.iter().map(|busy| busy.member.rank).collect();
    let member = worst.member;
    let (cost, since_s) = cost::of(&ranks, beside, member.since_last, cohorts, growth);
    let (who, arrival) = (
        describe::named(&ranks, member),
        describe::arrival(member, Some(excess(member, on_time).unwrap_or(0.0)), cost.as_ref()),
    );
    let others = all().count() - busy.len();
    let rates = Rates { tflops: member.rate.unwrap_or(usual), usual_tflops: usual, ranks: Some(others) };
    Some(slow_ranks(
        Class::Compute,
        ranks,
        Confidence::Likely,
        (cost, since_s),
        Evidence::MoreWork(MoreWork { who, times: worst.times, rates, arrival }),
        "look for work that the others do not have: longer sequences, a larger batch, an extra module or evaluation",
    ))
}
