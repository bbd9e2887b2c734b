//! Why the others wait for a rank: the measured differences from them that account for its cost.

use std::time::Duration;

use super::{
    super::{
        Clocks,
        cohort::{LONG, Member, RECENT},
        cpu_wait,
        device::{self, EXPLAINS},
        evidence::cost::{Cause, HostWork},
        pace::Growth,
    },
    SLOW, cost,
};
use crate::job::median;

/// A rank leaves its GPU idle if it has this many more waits for the GPU per step than the others, and this
/// multiple of theirs. This exceeds what the loss, the norm of the gradients and a check for overflow need.
const MORE_WAITS: f64 = 5.0;
const TIMES_THEIRS: f64 = 2.0;

/// Number of standard errors by which a GEMM rate must be lower, which happens by chance once in 700 times:
/// with few small GEMMs, rates vary by a third.
pub(super) const ERRORS: f64 = 3.0;

/// Largest difference between the rates of equal GPUs, as a share. The one constant that was chosen with
/// published seeds in view (docs/measurements-log.md).
pub(super) const APART: f64 = 0.03;

/// Time by which a digest may be late.
const LATE_DIGEST: Duration = Duration::from_millis(500);

/// Share of additional work with which a rank is reported even if its GEMMs alone do not account for the
/// cost. It is the share by which a GPU counts as slow.
const CLEARLY_MORE: f64 = 1.0 - SLOW;

/// A rank's figure, and the others' median.
pub(super) fn beside(
    member: &Member<'_>,
    others: &[&Member<'_>],
    of: impl Fn(&Member<'_>) -> Option<f64>,
) -> Option<(f64, f64)> {
    of(member).zip(median(others.iter().filter_map(|other| of(other)).collect()))
}

/// The measured facts about the rank and the others that account for enough of the cost, and the share of the time
/// for which they do; `None` if that is unknown.
pub(super) fn explained(
    member: &Member<'_>,
    others: &[&Member<'_>],
    share: f64,
) -> Option<(Cause, Option<f64>)> {
    let explains = |part: f64| part > EXPLAINS * share;
    let in_gemms = member.busy_lately.unwrap_or(1.0).min(1.0);
    // The threads of a rank with more work wait for its GPU as long as the others' threads wait for theirs.
    let spared = spared(member, others);
    let of_work = |times: f64| in_gemms * (times - 1.0);
    let by_work = |times: &f64| explains(of_work(*times)) && of_work(*times) > spared;
    let more_work = work(member, others).filter(Work::is_more).map(|work| work.times);
    if let Some(times) = more_work.filter(by_work) {
        return Some((Cause::MoreWork { times }, Some(in_gemms * (1.0 - 1.0 / times))));
    }
    let views: Vec<_> = others.iter().map(|other| other.view).collect();
    if let Some(lacks) = cpu_wait::one(member.rank, member.view, &views, LONG as f64) {
        let part = (lacks.share_pct() - lacks.others_pct.unwrap_or(0.0)) / 100.0;
        if explains(part) {
            return Some((Cause::LacksCpu(lacks), Some(part)));
        }
    }
    if let Some((work, own, usual)) = host_work(member, others).find(|(_, own, usual)| explains(own - usual))
    {
        let cause = Cause::HostWork { work, pct: 100.0 * own, usual_pct: 100.0 * usual };
        return Some((cause, Some(own - usual)));
    }
    // Counts are more certain than rates, which may rest on few GEMMs.
    let waits = beside(member, others, |member| member.view.blocked_calls());
    if let Some((per_step, usual_per_step)) =
        waits.filter(|(own, usual)| own - usual > MORE_WAITS && *own > TIMES_THEIRS * usual)
    {
        return Some((Cause::MoreWaits { per_step, usual_per_step }, None));
    }
    if cost::is_limited_by_host(member) {
        return None;
    }
    let others_error = median(others.iter().map(|other| other.rate_error()).collect()).unwrap_or(0.0);
    let error = member.rate_error().hypot(others_error);
    let of_rate = |own: f64, usual: f64| in_gemms * (1.0 - own / usual);
    let slower = |own: f64, usual: f64| {
        let apart = APART.max(ERRORS * error / usual);
        usual > 0.0 && own < (1.0 - apart) * usual && explains(of_rate(own, usual))
    };
    let against = beside(member, others, |member| member.rate).map(|(own, usual)| (own, usual, false));
    // The slowness may have ended, but is still part of the cost.
    let until_now =
        beside(member, others, |member| member.rate_longer).map(|(own, usual)| (own, usual, false));
    let before = member.rate.zip(member.past).map(|(own, past)| (own, past, true));
    let found =
        against.into_iter().chain(until_now).chain(before).find(|&(own, usual, _)| slower(own, usual));
    let (tflops, usual_tflops, is_past) = found?;
    let all = others.iter().map(|other| other.view).chain([member.view]);
    let clocks = Clocks::of(member.view, device::usual_clock(all)).or_no_cause_at(tflops / usual_tflops);
    let part = of_rate(tflops, usual_tflops);
    Some((Cause::SlowGemms { tflops, usual_tflops, is_past, clocks }, Some(part)))
}

/// What its host does instead of launching: the share of the time, and the others' median.
pub(super) fn host_work(
    member: &Member<'_>,
    others: &[&Member<'_>],
) -> impl Iterator<Item = (HostWork, f64, f64)> {
    HostWork::ALL.into_iter().filter_map(move |work| {
        let share = |member: &Member<'_>| work.share(member.view.host_shares());
        beside(member, others, share).map(|(own, usual)| (work, own, usual))
    })
}

/// The difference from the others to report if no measured cause accounts for the cost.
pub(super) fn guessed(member: &Member<'_>, others: &[&Member<'_>], share: f64) -> Cause {
    // More GEMMs also mean more launches: each part of the step may have grown by the same share, but not by
    // more. So its threads wait less by no more than this share.
    let spared = spared(member, others);
    let accounts = |times: f64| {
        let part = 1.0 - 1.0 / times;
        times > 1.0 + CLEARLY_MORE && part > EXPLAINS * share && part > spared
    };
    let work = work(member, others).filter(|work| accounts(work.times));
    if let Some(Work { times, .. }) = work.filter(Work::is_more) {
        return Cause::MoreWork { times };
    }
    // What may be more work is no evidence against its host.
    let blocked = beside(member, others, |member| member.blocked_lately).filter(|_| work.is_none());
    match blocked.filter(|(own, usual)| usual - own > EXPLAINS * share) {
        Some((own, usual)) => Cause::WaitsLess { pct: 100.0 * own, usual_pct: 100.0 * usual },
        None if is_shared(member, share) => Cause::SharedGpu,
        None => Cause::Unknown,
    }
}

/// The share of the time by which its threads wait less for the GPU than the others' threads.
fn spared(member: &Member<'_>, others: &[&Member<'_>]) -> f64 {
    beside(member, others, |member| member.blocked_lately).map_or(0.0, |(own, usual)| usual - own)
}

/// Whether other processes use its GPU for long enough to account for the cost. A GEMM may keep its rate then, if
/// it fits into a time slice.
fn is_shared(member: &Member<'_>, share: f64) -> bool {
    let processes = member.view.neighbours();
    let busy: Option<f64> = processes.iter().map(|process| Some(f64::from(process.busy?) / 100.0)).sum();
    !processes.is_empty() && busy.is_some_and(|busy| busy > EXPLAINS * share)
}

/// Its FLOPs as a multiple of the others'.
#[derive(Clone, Copy)]
struct Work {
    times: f64,
    /// The error of that figure, because digests cut steps in two.
    blur: f64,
}

impl Work {
    fn is_more(&self) -> bool {
        self.times > 1.0 + self.blur
    }
}

fn work(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Work> {
    let within = |member: &Member<'_>, digests: usize| {
        member.view.arithmetic_of_last(Duration::from_secs(digests as u64) + LATE_DIGEST)
    };
    let arithmetic = |member: &Member<'_>| within(member, LONG).or_else(|| within(member, RECENT));
    let step = member.pace.max(member.view.longest_step());
    let uneven = arithmetic(member).zip(step);
    let blur = uneven.map_or(1.0, |((_, uneven), step)| uneven + step.seconds() / LONG as f64);
    let (own, usual) = beside(member, others, |member| arithmetic(member).map(|(work, _)| work))?;
    Some(Work { times: own / usual, blur })
}

/// Whether GEMMs at this share of their expected rate may explain the growth of steps. They cannot if they
/// take little of a step.
pub(super) fn may_account(member: &Member<'_>, rate: f64, growth: Option<&Growth>) -> bool {
    let in_gemms = member.busy_lately.unwrap_or(1.0).min(1.0);
    growth.is_none_or(|growth| in_gemms * (1.0 - rate) > EXPLAINS * growth.share())
}
