//! Straggler delay: the cost of ranks that enter collectives last. All rules are based on it: a cost that
//! matters is reported, with or without a known cause.

use std::time::Duration;

use xpu_wire::id::Rank;

use super::{
    super::{
        Class, Confidence, Cost, Evidence, Finding,
        cohort::{LONG, Member, WIDTH, usual_of_all, usual_of_others},
        device::EXPLAINS,
        evidence::cost::Straggler,
        pace::{self, Growth},
    },
    cause, slow_ranks,
};
use crate::job::{Onset, Recent, StragglerDelay};

/// Share of the time from which a cost is reported; a smaller one is not worth an investigation.
pub(in crate::finding) const REPORTED: f64 = 0.02;

/// The share that must remain without the digest of the largest loss. Leaving it out removes a fifteenth of
/// [`LONG`] equal losses, and a fifth of unequal ones.
const STEADY: f64 = 0.8 * REPORTED;

/// Number of timed collectives from which few waits are significant: if one in ten waited, the chance that
/// none of these did would be one in 24.
const ENOUGH: u32 = 30;

/// Number of timed collectives: the chance that one of two ranks enters all of them last is one in 2^8.
const ALL_OF: u32 = 8;

/// The same, if the time that its threads wait for the GPU also shows the rank.
const SOME_OF: u32 = ALL_OF / 2;

/// Largest number of seconds that [`LONG`] digests cover, because they are a second or a little more apart.
pub(super) const LOOKED_BACK: f64 = 4.0 / 3.0 * LONG as f64;

/// If another rank costs more than this share of the first one's cost, one of them may pass on the other's
/// delay, so neither is reported. Tuned.
const ALONE: f64 = 0.6;

/// Share of the time that the others waited for a rank: if the rank itself waited for this much, it mostly
/// passes on the delay of another rank.
pub(super) const PASSED_ON: f64 = 0.5;

/// Share of a cost from which a rank or its GPU accounts for it: most of it.
const MOST: f64 = 0.5;

/// Share of its delay for which a rank must enter collectives last. Another rank hides it if it is last for less:
/// then most of the delay costs nothing.
const HIDDEN: f64 = 0.5;

/// Time before steps became longer that is compared with the time since: about as many digests as show the
/// change of step times.
const JUST_BEFORE: Duration = Duration::from_secs(10);

/// Share of the present wait for a rank below which the others hardly waited for it.
const HARDLY: f64 = 0.5;

/// Number of waits for the GPU per step from which the waiting of the others is known: one call in 50 steps,
/// which is how often programs log.
const FEW_WAITS: f64 = 0.02;

/// Largest difference between the times that equal hosts need for the same program, as a share of the time:
/// at most 5.3 % in three runs on two hosts, and half as much as an allowance.
const HOSTS_DIFFER: f64 = 0.08;

/// Shares of the time that the others lose because of a rank.
#[derive(Clone, Copy, Debug)]
struct Lost {
    share: f64,
    /// Half the width of its interval.
    error: f64,
}

/// The others' wait for it; `None` while too little was timed, or if the rank does not stand out.
fn waited_for(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    waited_more(member, others).filter(|lost| lost.share > lost.error)
}

/// The difference between the others' wait for it and their wait for each other, even if it is within the
/// error.
fn waited_more(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    let delay = member.delay?;
    let usual = usual_of_others(others.iter().filter_map(|other| Some(other.delay?.cost)).collect())?;
    let share = delay.cost - usual;
    (share > 0.0).then_some(Lost { share, error: WIDTH * delay.error })
}

/// Same as [`waited_for`], for a rank that entered all its timed collectives last, if no other entered many
/// last. If a step has few collectives, one of them may carry the whole delay, and it is rarely timed.
fn always_waited_for(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    member.delay.filter(|delay| delay.joined >= ALL_OF && delay.last == delay.joined)?;
    let seldom = |other: &&Member<'_>| other.delay.is_none_or(|delay| 2 * delay.last <= delay.joined);
    waited_more(member, others).filter(|_| others.iter().all(seldom))
}

/// The time by which its threads wait for the GPU less than the others' threads do, for a rank for which the
/// others wait, or which entered most of its timed collectives last as no other did. This time is counted
/// completely. If one collective of many carries most of the delay, it is rarely timed.
fn spared(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    let is_mostly_last = |member: &Member<'_>, least: u32| {
        member.delay.is_some_and(|delay| delay.joined >= least && 2 * delay.last > delay.joined)
    };
    let is_last = is_mostly_last(member, SOME_OF) && !others.iter().any(|other| is_mostly_last(other, 1));
    let usual = blocked_time(others).filter(|_| is_last || waited_for(member, others).is_some());
    let share = usual? - waits(member)?;
    waits_less(member, usual).then_some(Lost { share, error: 0.0 })
}

/// The time that the others lose because of it: at most the time that they wait for it.
fn lost(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    lost_since(Onset::BEFORE, member, others)
}

/// Same as [`lost`], over the digests since the loss began.
fn lost_since(onset: Onset, member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    bounded(waited_for(member, others)?, onset, member, others)
}

/// Same as [`lost`], for a rank that is late together with others, so that the remaining ranks never wait for
/// it alone.
fn lost_together(member: &Member<'_>, rest: &[&Member<'_>]) -> Option<Lost> {
    bounded(later_than(rest, member)?, Onset::BEFORE, member, rest)
}

/// Its arrival skew beyond that of the rest.
fn later_than(rest: &[&Member<'_>], member: &Member<'_>) -> Option<Lost> {
    let usual = usual_of_others(rest.iter().map(|other| other.late_pooled).collect())?;
    let share = member.late_pooled - usual;
    Some(Lost { share, error: WIDTH * member.delay?.late_error * member.late_pooled })
}

/// What the rest would lose because of it if no other of the named ranks were late. It may wait for those itself,
/// so it is the time by which its GEMMs wait less than those of the rest.
fn lost_alone(onset: Onset, member: &Member<'_>, rest: &[&Member<'_>]) -> Option<Lost> {
    let Lost { share: sum, error } = later_than(rest, member)?;
    let usual = usual_of_others(rest.iter().filter_map(|other| exposed_since(onset, other)).collect());
    let less = usual.zip(exposed_since(onset, member)).map(|(usual, own)| usual - own);
    let most = less.unwrap_or(onset.times * member.late_pooled);
    let share = (onset.times * sum).min(most).min(blocked_time_since(onset, rest).unwrap_or(1.0));
    (share > 0.0 && sum > error).then(|| Lost { share, error: error * share / sum })
}

/// The cost of a rank while other findings name ranks too.
enum Beside {
    /// It is later than the others, and hides some of them: all that the rest waits for it is its cost.
    Latest(Lost),
    /// It is not hidden and hides none.
    Own,
    /// A later one hides it.
    Hidden(Lost, Rank),
}

impl Beside {
    /// `others`: the ranks of other findings. `rest`: the ranks of no finding.
    fn of(member: &Member<'_>, all: &[&Member<'_>], others: &[&Member<'_>], rest: &[&Member<'_>]) -> Self {
        let alone = |member: &Member<'_>| {
            let onset = member.delay.and_then(|delay| delay.onset).unwrap_or(Onset::BEFORE);
            lost_alone(onset, member, rest)
        };
        let is_hidden = |member: &Member<'_>, alone: Lost| {
            let now = lost(member, &self::others(all, member.rank));
            now.is_none_or(|now| now.share < HIDDEN * alone.share)
        };
        let others = others.iter().filter_map(|&other| Some((other, alone(other)?)));
        let others: Vec<_> = others.collect();
        let latest = others.iter().max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share));
        match alone(member).zip(latest) {
            Some((own, (_, latest))) if own.share >= latest.share => {
                let hides = others.iter().any(|&(other, alone)| is_hidden(other, alone));
                if hides { Self::Latest(own) } else { Self::Own }
            }
            Some((own, (latest, _))) if is_hidden(member, own) => Self::Hidden(own, latest.rank),
            _ => Self::Own,
        }
    }
}

/// The time that is lost, computed from a sum of waits.
fn bounded(
    Lost { share: sum, error }: Lost,
    onset: Onset,
    member: &Member<'_>,
    others: &[&Member<'_>],
) -> Option<Lost> {
    // Overlapping collectives, such as gradients in the backward pass, wait for the same delay several times,
    // so the loss is at most the time that the others' GEMMs waited.
    let exposed = exposed_wait(onset, member, others).map(|wait| {
        // Without this rank, they would still wait for the rank that entered before it.
        let waited = others.iter().filter_map(|other| Some(other.delay?.waited)).collect();
        wait * usual_of_others(waited).filter(|waited| *waited > sum).map_or(1.0, |waited| sum / waited)
    });
    let most = exposed.unwrap_or(onset.times * member.late_pooled);
    let share = (onset.times * sum).min(most).min(blocked_time_since(onset, others).unwrap_or(1.0));
    (share > 0.0).then(|| Lost { share, error: error * share / sum })
}

/// The others' exposed communication without its transfers, which are exposed on the late rank too.
fn exposed_wait(onset: Onset, member: &Member<'_>, others: &[&Member<'_>]) -> Option<f64> {
    let usual = usual_of_others(others.iter().filter_map(|other| exposed_since(onset, other)).collect())?;
    let waited = member.delay.map_or(0.0, |delay| delay.waited);
    Some(usual - exposed_since(onset, member).map_or(0.0, |own| (own - waited).max(0.0)))
}

fn exposed_since(onset: Onset, member: &Member<'_>) -> Option<f64> {
    match onset {
        Onset::BEFORE => member.exposed,
        Onset { digests, .. } => member.view.exposed_for(digests),
    }
}

/// Upper bound of the time that these ranks lose, for any late rank: the time for which their threads wait
/// for the GPU. A GPU that waits for others while its own host has nothing to launch loses nothing.
pub(super) fn blocked_time(ranks: &[&Member<'_>]) -> Option<f64> {
    blocked_time_since(Onset::BEFORE, ranks)
}

fn blocked_time_since(onset: Onset, ranks: &[&Member<'_>]) -> Option<f64> {
    let waits = |member: &Member<'_>| match onset {
        Onset::BEFORE => waits(member),
        Onset { digests, .. } => observed(member, member.view.blocked_for(digests)),
    };
    usual_of_others(ranks.iter().map(|member| waits(member)).collect::<Option<_>>()?)
}

/// Whether its host is known to limit it: its threads hardly wait for the GPU, so a faster GPU would hardly
/// help.
pub(super) fn is_limited_by_host(member: &Member<'_>) -> bool {
    waits(member).is_some_and(|share| share < HOSTS_DIFFER)
}

/// Whether its threads wait for their GPU for a smaller share of the time than the others' threads, by more
/// than equal hosts differ. True while either share is unknown.
pub(super) fn waits_less(member: &Member<'_>, others: Option<f64>) -> bool {
    let known = others.zip(waits(member));
    known.is_none_or(|(usual, own)| usual - own > HOSTS_DIFFER * (1.0 - usual))
}

/// Share of the time that its threads wait for the GPU; `None` if they wait in unobserved ways.
fn waits(member: &Member<'_>) -> Option<f64> {
    observed(member, member.blocked)
}

fn observed(member: &Member<'_>, blocked: Option<f64>) -> Option<f64> {
    blocked.filter(|share| member.view.blocked_calls().map_or(*share > 0.0, |calls| calls > FEW_WAITS))
}

/// Whether it is known that, for this many seconds, the others have not waited for any rank, or at least not
/// for this one. A slowdown in that time costs nothing. Waiting for sends and receives is not observed.
pub(super) fn delays_no_rank(rank: Rank, since_s: f64, cohorts: &[Vec<Member<'_>>]) -> bool {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    if all.len() < 2 || all.iter().any(|member| member.sends) {
        return false;
    }
    // The others may wait for another rank, and not for this one.
    let costs = |member: &Member<'_>| waited_for(member, &others(&all, member.rank));
    let named = all.iter().find(|member| member.rank == rank);
    let is_known = named.is_some_and(|member| member.delay.is_some() && costs(member).is_none());
    if is_known && all.iter().any(|member| costs(member).is_some_and(|lost| lost.share > REPORTED)) {
        return true;
    }
    let delays = all.iter().map(|member| member.delay.filter(|delay| delay.joined >= ENOUGH));
    if all.iter().all(|member| is_limited_by_host(member)) {
        return true;
    }
    let Some(delays) = delays.collect::<Option<Vec<_>>>() else { return false };
    if is_known {
        return true;
    }
    let usual = usual_of_all(delays.iter().map(|delay| delay.cost).collect()).unwrap_or(0.0);
    let most = delays.iter().map(|delay| delay.cost - usual + WIDTH * delay.error).fold(0.0, f64::max);
    // The delay may have begun after most of the look-back.
    most * (LOOKED_BACK / since_s.max(1.0)).max(1.0) < REPORTED
}

/// Whether the others are known to wait for this rank, beyond the error, for at least the time from which a
/// cost is reported.
pub(super) fn is_awaited(rank: Rank, cohorts: &[Vec<Member<'_>>]) -> bool {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    let named = all.iter().find(|member| member.rank == rank);
    let waited = named.and_then(|member| waited_for(member, &others(&all, rank)));
    waited.is_some_and(|lost| lost.share - lost.error >= REPORTED)
}

/// Whether a GPU at this share of its expected rate may account for most of what its rank costs, and for more than
/// its host does. Everything on a slower GPU takes longer, not only GEMMs, but by no larger factor.
pub(super) fn may_be_of_gpu(member: &Member<'_>, rate: f64, cohorts: &[Vec<Member<'_>>]) -> bool {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    let others = others(&all, member.rank);
    let least = lost(member, &others).map_or(0.0, |lost| lost.share - lost.error);
    let by_host = cause::host_work(member, &others).map(|(_, own, usual)| own - usual).fold(0.0, f64::max);
    let by_gpu = 1.0 - rate;
    by_gpu > MOST * least && by_gpu > by_host
}

fn others<'a, 'b>(all: &'b [&'b Member<'a>], of: Rank) -> Vec<&'b Member<'a>> {
    all.iter().copied().filter(|member| member.rank != of).collect()
}

/// The finding for the costliest rank, if no rule has named one.
pub(super) fn finding(cohorts: &[Vec<Member<'_>>], growth: Option<&Growth>) -> Option<Finding> {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    // Whether the waits of threads show that it accounts for most of the growth.
    let is_spared = |member: &Member<'_>| {
        growth.is_some_and(|growth| {
            let spared = spared(member, &others(&all, member.rank));
            spared.is_some_and(|spared| spared.share > MOST * growth.share())
        })
    };
    let is_own = |member: &Member<'_>, delay: StragglerDelay| {
        delay.steady > STEADY && (delay.waited < PASSED_ON * delay.cost || is_spared(member))
    };
    let suspects =
        all.iter().filter(|member| member.begun && member.delay.is_some_and(|delay| is_own(member, delay)));
    // Waiting for sends and receives is not observed: a rank that waited for a pipeline neighbour may be late
    // because of it.
    if all.iter().any(|member| member.sends) {
        return None;
    }
    // If steps became longer, the increase is the cost, and the rank for which the others wait most accounts
    // for it.
    let measure = |member: &Member<'_>| {
        let others = others(&all, member.rank);
        if growth.is_none() {
            return lost(member, &others);
        }
        let timed = waited_for(member, &others).or_else(|| always_waited_for(member, &others));
        [timed, spared(member, &others)]
            .into_iter()
            .flatten()
            .max_by(|one, other| one.share.total_cmp(&other.share))
    };
    // Waits from before the growth do not account for it.
    let accounts = |member: &Member<'_>| {
        growth.is_none_or(|growth| {
            let recent = member.view.recent_delay(Duration::from_secs_f64(growth.since_s));
            recent.is_some_and(|Recent { lost, joined, last }| {
                let many = joined >= ALL_OF || joined >= SOME_OF && is_spared(member);
                lost > EXPLAINS * growth.share() || many && 2 * last > joined
            })
        })
    };
    let suspects = suspects.filter(|member| accounts(member));
    let known = suspects.filter_map(|member| Some((*member, measure(member)?)));
    let mut known: Vec<_> = known.filter(|(_, lost)| lost.share > ALONE * REPORTED).collect();
    known.sort_by(|(_, one), (_, other)| other.share.total_cmp(&one.share));
    let &(member, lost) = known.first()?;
    let next = known.get(1).map_or(0.0, |(_, next)| next.share);
    let least = growth.map_or(REPORTED, |growth| REPORTED.max(EXPLAINS * growth.share()));
    if lost.share < least || next > ALONE * lost.share {
        return None;
    }
    let delay = member.delay?;
    let others = others(&all, member.rank);
    if growth.is_none() && blocked_time(&others).is_some_and(|most| most < HOSTS_DIFFER) {
        return None;
    }
    // Collectives that overlap wait for the same late rank several times.
    let share = growth.map_or(lost.share, |growth| lost.share.min(growth.share()));
    let (cause, part) = cause::explained(member, &others, share).or_else(|| {
        // A small difference between two hosts is no fault.
        let is_large = lost.share - lost.error > HOSTS_DIFFER;
        (growth.is_some() || is_large || waits_less(member, blocked_time(&others)))
            .then(|| (cause::guessed(member, &others, share), None))
    })?;
    let (class, advice) = (cause.class(), cause.advice());
    let since_s = member.view.last_report().since(delay.since).as_secs_f64();
    let (cost, since_s) = of(&[member.rank], &[], since_s, cohorts, growth);
    let Cost { pct, pct_error, ms_per_step, .. } = cost?;
    let evidence = Evidence::Straggler(Straggler {
        rank: member.rank,
        host: member.view.host().clone(),
        pct,
        error_pct: pct_error,
        step_ms: ms_per_step.map(|ms| 100.0 * ms / pct),
        timed: delay.joined,
        last: delay.last,
        tflops: cause::beside(member, &others, |member| member.rate),
        cause,
        explained_pct: part.map(|part| (100.0 * part / share).min(100.0)),
    });
    let confidence = if class == Class::Step { Confidence::Guess } else { Confidence::Likely };
    Some(slow_ranks(class, vec![member.rank], confidence, (cost, since_s), evidence, advice))
}

/// The cost of the costliest of these ranks, and its duration: `since_s`, or longer if the history shows it.
/// `beside`: the ranks of all findings.
pub(super) fn of(
    ranks: &[Rank],
    beside: &[Rank],
    since_s: f64,
    cohorts: &[Vec<Member<'_>>],
    growth: Option<&Growth>,
) -> (Option<Cost>, f64) {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    // Ranks named together are no reference for each other.
    let (named, rest): (Vec<_>, Vec<_>) = all.iter().partition(|member| ranks.contains(&member.rank));
    let lost = if ranks.len() > 1 { lost_together } else { lost };
    let costs = named.iter().filter_map(|&member: &&Member<'_>| Some((member, lost(member, &rest)?)));
    let most = costs.max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share));
    let remembered = most.and_then(|(member, _)| Some((member.view.last_report(), member.delay?.since)));
    let remembered = remembered.filter(|_| since_s <= LOOKED_BACK);
    let since_s = since_s.max(remembered.map_or(0.0, |(now, since)| now.since(since).as_secs_f64()));
    let delay = most.and_then(|(member, _)| member.delay).filter(|_| ranks.len() == 1);
    // If steps became longer when the slowdown began, this increase is its cost, independent of what was
    // timed.
    let is_its = |growth: &&Growth| {
        growth.began_with(since_s)
            || most.is_some_and(|(member, lost)| {
                growth.exceeds_former_step(lost.share) || is_since(growth, member)
            })
    };
    if let Some(growth) = growth.filter(is_its) {
        return (Some(growth.cost(all.len())), growth.since_s);
    }
    // If losses are rare, the increase of step times covers more of them than the last digests do.
    let lasts = growth.is_some_and(Growth::is_of_most_steps);
    if let Some(average) = delay.and_then(|delay| delay.average).filter(|_| !lasts) {
        let known = pace::lost_in_pauses(all.iter().map(|member| member.view));
        if let Some((share, step)) = known.filter(|(share, _)| average > MOST * share) {
            return (Some(Cost::of(share, 0.0, Some(step), all.len(), since_s)), since_s);
        }
    }
    let (others, unnamed): (Vec<_>, Vec<_>) = rest.iter().partition(|member| beside.contains(&member.rank));
    if let Some(member) = latest(&named, &unnamed).filter(|_| !others.is_empty()) {
        let cost = |lost: Lost| Cost::of(lost.share, lost.error, member.pace, all.len(), since_s);
        match Beside::of(member, &all, &others, &unnamed) {
            Beside::Latest(lost) => return (Some(cost(lost)), since_s),
            Beside::Hidden(lost, rank) => return (Some(cost(lost).behind(rank)), since_s),
            Beside::Own => {}
        }
    }
    let Some((member, lost)) = most else { return (None, since_s) };
    // The digests of the delay may hold no whole step yet.
    let step = delay.and_then(|delay| delay.step).or(member.pace);
    // Digests from before the slowdown do not make it cheaper.
    let lost = delay.map_or(Some(lost), |delay| lost_since(delay.onset?, member, &rest));
    let cost = lost.map(|lost| Cost::of(lost.share, lost.error, step, all.len(), since_s));
    (cost, since_s)
}

/// Whether the others wait for it since the growth, for a good part of it, and hardly waited just before. The
/// start of its delay may be that of the job: the first steps wait for much else.
fn is_since(growth: &Growth, member: &Member<'_>) -> bool {
    let around = member.view.delay_around(Duration::from_secs_f64(growth.since_s), JUST_BEFORE);
    around.is_some_and(|(now, before)| now > EXPLAINS * growth.share() && before < HARDLY * now)
}

/// Of these ranks, the one that is the latest compared with the rest.
fn latest<'a>(ranks: &[&'a Member<'a>], rest: &[&Member<'_>]) -> Option<&'a Member<'a>> {
    let late = ranks.iter().filter_map(|&member| Some((member, lost_together(member, rest)?.share)));
    late.max_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(member, _)| member)
}
