//! What ranks cost the job by coming last. The floor under all rules: what matters is told, whether or not its cause is known.

use super::super::{
    Class, Confidence, Cost, Finding, Kind, Severity,
    cohort::{LONG, Member, RECENT, usual_of_all, usual_of_others},
    device, phrase,
};
use crate::{
    id::Rank,
    job::{Toll, median},
    unit::Nanoseconds,
};

/// Share of the time from which a cost is told.
const TOLD: f64 = 0.02;

/// And what must be left of it without the second in which most was lost.
const STEADY: f64 = 0.016;

/// Timed collectives from which it is known that few of them were waited for.
const ENOUGH: u32 = 30;

/// Waits for the GPU a step, more than the others make and as a multiple of theirs, that keep the GPU without work.
const MORE_WAITS: f64 = 5.0;
const TIMES_THEIRS: f64 = 2.0;

/// Rules that look back over [`LONG`] digests, a second or a little more apart, know of no more seconds than these.
const LOOKED_BACK: f64 = 4.0 / 3.0 * LONG as f64;

/// Where another costs more than this share of what the first does, one may pass on what the other began: neither is told.
const ALONE: f64 = 0.6;

/// Standard errors within which a cost lies, 19 times of 20.
const WIDTH: f64 = 2.0;

/// Who waited for others for so much of what they wait for it passes on what is not its own.
const PASSED_ON: f64 = 0.5;

/// Rates of equal GPUs differ by up to this share.
const APART: f64 = 0.03;

/// What accounts for so much of a cost is told as its cause.
const EXPLAINS: f64 = 0.35;

/// Shares of the time that the others lose by a rank.
#[derive(Clone, Copy, Debug)]
struct Lost {
    share: f64,
    /// Half the width of its interval.
    error: f64,
}

/// What the others lose by it; `None` while too little was timed, or if nothing sets it apart.
fn lost(member: &Member<'_>, others: &[&Member<'_>]) -> Option<Lost> {
    let toll = member.toll?;
    let usual = usual_of_others(others.iter().filter_map(|other| Some(other.toll?.cost)).collect())?;
    let sum = toll.cost - usual;
    // Collectives that overlap, as gradients' do in backward, wait for the same lateness several times over: no more is lost
    // than the others' products waited for.
    let exposed = usual_of_others(others.iter().filter_map(|other| other.exposed).collect());
    let share = sum.min(exposed.unwrap_or(member.late_pooled));
    let is_apart = share > 0.0 && sum > WIDTH * toll.error;
    is_apart.then(|| Lost { share, error: WIDTH * toll.error * share / sum })
}

/// Whether it is known that nobody has kept the others waiting for so many seconds: what became slower then costs nothing. Waiting for sends
/// and receives is not seen.
pub(super) fn nobody_waits(since_s: f64, cohorts: &[Vec<Member<'_>>]) -> bool {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    if all.len() < 2 || all.iter().any(|member| member.sends) {
        return false;
    }
    let tolls = all.iter().map(|member| member.toll.filter(|toll| toll.joined >= ENOUGH));
    let Some(tolls) = tolls.collect::<Option<Vec<_>>>() else { return false };
    let usual = usual_of_all(tolls.iter().map(|toll| toll.cost).collect()).unwrap_or(0.0);
    let most = tolls.iter().map(|toll| toll.cost - usual + WIDTH * toll.error).fold(0.0, f64::max);
    // It may have begun after most of the time that is looked back over.
    most * (LOOKED_BACK / since_s.max(1.0)).max(1.0) < TOLD
}

fn others<'a, 'b>(all: &'b [&'b Member<'a>], of: Rank) -> Vec<&'b Member<'a>> {
    all.iter().copied().filter(|member| member.rank != of).collect()
}

/// What is told of who costs most, where no rule has named one.
pub(super) fn finding(cohorts: &[Vec<Member<'_>>]) -> Option<Finding> {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    let is_own = |toll: Toll| toll.steady > STEADY && toll.waited < PASSED_ON * toll.cost;
    let suspects = all.iter().filter(|member| member.begun && member.toll.is_some_and(is_own));
    // Waiting for sends and receives is not seen: who waited for a neighbour in a pipeline may be late for its sake.
    if all.iter().any(|member| member.sends) {
        return None;
    }
    let known = suspects.filter_map(|member| Some((*member, lost(member, &others(&all, member.rank))?)));
    let mut known: Vec<_> = known.filter(|(_, lost)| lost.share > ALONE * TOLD).collect();
    known.sort_by(|(_, one), (_, other)| other.share.total_cmp(&one.share));
    let &(member, lost) = known.first()?;
    let next = known.get(1).map_or(0.0, |(_, next)| next.share);
    if lost.share < TOLD || next > ALONE * lost.share {
        return None;
    }
    let toll = member.toll?;
    let others = others(&all, member.rank);
    let (class, why, advice) = cause(member, &others, lost.share);
    let step = toll.step.map(Nanoseconds::milliseconds);
    let cost = step.map_or_else(
        || format!("{:.0} % of the time ({})", 100.0 * lost.share, interval(lost, 100.0)),
        |step| {
            let ms = lost.share * step;
            format!("{ms:.1} ms of a step of {step:.1} ms ({})", interval(lost, step))
        },
    );
    let evidence = format!(
        "rank {} ({}) costs the others {cost}: they wait for it alone at {} of {} timed collectives; {why}",
        member.rank,
        member.view.host(),
        phrase::count(toll.last as usize),
        phrase::count(toll.joined as usize),
    );
    let (cost, since_s) = of(&[member.rank], member.view.heard().since(toll.since).as_secs_f64(), cohorts);
    Some(Finding {
        kind: Kind::SlowRank,
        class,
        ranks: vec![member.rank],
        confidence: if class == Class::Step { Confidence::Guess } else { Confidence::Likely },
        since_s,
        evidence,
        advice: advice.to_owned(),
        collective: None,
        severity: Severity::Slow,
        cost,
    })
}

fn interval(lost: Lost, whole: f64) -> String {
    format!("{:.1} to {:.1}", (lost.share - lost.error).max(0.0) * whole, (lost.share + lost.error) * whole)
}

/// What explains that it is late, of what is known of it and the others: a cause that accounts for enough of the cost.
fn cause(member: &Member<'_>, others: &[&Member<'_>], share: f64) -> (Class, String, &'static str) {
    let explains = |part: f64| part > EXPLAINS * share;
    let pair = |of: &dyn Fn(&Member<'_>) -> Option<f64>| {
        let usual = median(others.iter().filter_map(|other| of(other)).collect());
        of(member).zip(usual)
    };
    let rates = pair(&|member: &Member<'_>| member.rate);
    let in_products = member.busy_lately.unwrap_or(1.0).min(1.0);
    let slower = |own: f64, usual: f64| {
        usual > 0.0 && own < (1.0 - APART) * usual && explains(in_products * (1.0 - own / usual))
    };
    let against = rates.map(|(own, usual)| (own, usual, "the others'"));
    let before = member.rate.zip(member.past).map(|(own, past)| (own, past, "its own past's"));
    for (own, usual, whose) in against.into_iter().chain(before) {
        if slower(own, usual) {
            let less = 100.0 * (1.0 - own / usual);
            let why = format!("its GEMMs run at {own:.1} TFLOPS, {less:.0} % below {whose} {usual:.1}");
            let all = others.iter().map(|other| other.view).chain([member.view]);
            let held = device::usual_clock(all).and_then(|usual| device::held(member.view, usual));
            return match held {
                Some(held) => (
                    Class::Clocks,
                    format!("{why}, and {held}"),
                    "look at that GPU's cooling, power supply and clock limits (nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER)",
                ),
                None => (
                    Class::Compute,
                    why,
                    "look for other processes on its GPU (nvidia-smi), and at its clocks, power and temperature (nvidia-smi -q -d PERFORMANCE)",
                ),
            };
        }
    }
    let rates = rates.map_or_else(String::new, |(own, usual)| {
        format!("its GEMMs run at {own:.1} TFLOPS, the others' at {usual:.1}; ")
    });
    // Digests cut steps in two: what that may be off by explains nothing.
    let arithmetic =
        |member: &Member<'_>| member.view.arithmetic(0, LONG).or_else(|| member.view.arithmetic(0, RECENT));
    let blur =
        arithmetic(member).zip(member.pace).map_or(1.0, |((_, seconds), pace)| pace.seconds() / seconds);
    let more =
        pair(&|member: &Member<'_>| arithmetic(member).map(|(work, _)| work)).map(|(own, usual)| own / usual);
    if let Some(more) = more.filter(|more| *more > 1.0 + blur && explains(in_products * (more - 1.0))) {
        return (
            Class::Compute,
            format!("{rates}it does {more:.2} times their arithmetic"),
            "look at what it computes and others do not: longer sequences or a larger batch, a module or an evaluation of its own",
        );
    }
    if let Some((own, usual)) =
        pair(&|member: &Member<'_>| member.blocked[0]).filter(|(own, usual)| explains(usual - own))
    {
        return (
            Class::Host,
            format!(
                "{rates}its threads wait for the GPU {:.0} % of the time, the others' {:.0} %: its GPU gets its work late",
                100.0 * own,
                100.0 * usual
            ),
            "look at what its Python does between launches (xpu-top stacks): data loader, checkpoint, garbage collection, a thread that holds the GIL, a busy CPU",
        );
    }
    let waits = pair(&|member: &Member<'_>| member.view.blocked_calls());
    if let Some((own, usual)) =
        waits.filter(|(own, usual)| own - usual > MORE_WAITS && *own > TIMES_THEIRS * usual)
    {
        return (
            Class::Host,
            format!(
                "{rates}its threads wait for the GPU {own:.0} times a step, the others' {usual:.0} times"
            ),
            "look for what makes it wait for its GPU within the step: .item(), .cpu(), a tensor that is printed or compared (xpu-top stacks)",
        );
    }
    (
        Class::Step,
        format!("{rates}the cause is not known"),
        "capture some steps (xpu-top capture --steps 5 --kernels) and look at what this rank does before its collectives: copies, kernels that are no GEMM, its host",
    )
}

/// What these ranks cost, by the one that costs most, and since when they do: as long as is said, or longer where more is remembered.
pub(super) fn of(ranks: &[Rank], since_s: f64, cohorts: &[Vec<Member<'_>>]) -> (Option<Cost>, f64) {
    let all: Vec<_> = cohorts.iter().flatten().collect();
    // Who is named with it is no measure for it.
    let (named, rest): (Vec<_>, Vec<_>) = all.iter().partition(|member| ranks.contains(&member.rank));
    let costs = named.into_iter().filter_map(|member: &Member<'_>| Some((member, lost(member, &rest)?)));
    let most = costs.max_by(|(_, one), (_, other)| one.share.total_cmp(&other.share));
    let Some((member, lost)) = most else { return (None, since_s) };
    let remembered = member.toll.filter(|_| since_s <= LOOKED_BACK);
    let since = remembered.map_or(0.0, |toll| member.view.heard().since(toll.since).as_secs_f64());
    let since_s = since_s.max(since);
    let step = member.toll.and_then(|toll| toll.step);
    (Some(Cost::of(lost.share, lost.error, step, (all.len(), since_s))), since_s)
}
