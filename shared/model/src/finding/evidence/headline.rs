//! Evidence in one short line: rank, host, problem and cost. `Display` gives the sentence with all figures.

use std::time::Duration;

use xpu_wire::{
    frame::{EndCause, Ending},
    id::Rank,
};

use super::{
    super::{Clocks, CollectiveCall, Cost},
    Evidence, Neighbours,
    cost::{Cause, Straggler},
    device::GrowingMemory,
    exit::Exited,
    hang::{Exchanging, Forming, Idle, Messages, Mismatch, Missing, Together, culprits_kernel},
    link::SlowLink,
    pace::{Pauses, Regression},
    slow::{Arrival, Named, Waiting},
};
use crate::{
    figure::{self, two},
    phrase::counted,
};

/// Columns of a headline: with a sign before it, a terminal of 80 columns shows it in full.
pub const WIDTH: usize = 76;

/// Letters of a host's name.
const HOST: usize = 12;

/// `rank 6 (node-2)`, `rank 6 (node-2) and 3 more`
fn who(ranks: &[Rank], first: Rank, host: Option<&str>) -> String {
    let host = host.map_or_else(String::new, |host| format!(" ({})", short(host)));
    let more = match ranks.len().saturating_sub(1) {
        0 => String::new(),
        more => format!(" and {} more", figure::count(more as u64)),
    };
    format!("rank {first}{host}{more}")
}

/// A host without its domain. An address has no domain.
fn short(host: &str) -> String {
    let is_address = host.starts_with(|first: char| first.is_ascii_digit()) || host.contains(':');
    let name = if is_address { host } else { host.split('.').next().unwrap_or(host) };
    if name.chars().count() <= HOST {
        return name.to_owned();
    }
    name.chars().take(HOST - 1).chain(['…']).collect()
}

/// The first of these lines that fits, else the last.
fn fitted<const N: usize>(lines: [String; N]) -> String {
    let fits = lines.iter().position(|line| line.chars().count() <= WIDTH);
    lines.into_iter().nth(fits.unwrap_or(N - 1)).unwrap_or_default()
}

/// The problem and its cost. If not everything fits, the figures are left out first.
fn with_cost(what: &str, figures: &str, cost: &str) -> String {
    fitted([format!("{what}{figures}{cost}"), format!("{what}{cost}"), what.to_owned()])
}

/// The problem and its duration.
fn with_age(what: &str, figures: &str, seconds: f64) -> String {
    let age = age(seconds);
    fitted([format!("{what}{figures}, {age}"), format!("{what}, {age}"), what.to_owned()])
}

fn age(seconds: f64) -> String {
    figure::age(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

/// `, costs 28 ms a step`
pub(in crate::finding) fn costs(ms: Option<f64>, pct: f64) -> String {
    ms.map_or_else(
        || format!(", costs {} % of the time", two(pct)),
        |ms| format!(", costs {} ms a step", two(ms)),
    )
}

/// ` once rank 6 is on time`
fn once(behind: Option<Rank>) -> String {
    behind.map_or_else(String::new, |rank| format!(" once rank {rank} is on time"))
}

/// Largest arrival skew that is normal among healthy ranks.
const LEAST_SKEW_PCT: f64 = 0.5;

fn arrival(of: &Arrival) -> String {
    match of.waiting {
        None => String::new(),
        // A slowdown that has just begun: the collectives that it delays are not matched yet.
        Some(Waiting { loss, is_cost: false, .. }) if loss.pct < LEAST_SKEW_PCT => String::new(),
        Some(Waiting { loss, is_cost: true, behind, .. }) => {
            costs(loss.ms_of_step.map(|(ms, _)| ms), loss.pct) + &once(behind)
        }
        Some(Waiting { loss, is_cost: false, .. }) => loss.ms_of_step.map_or_else(
            || format!(", arrival skew {} % of the time", two(loss.pct)),
            |(ms, _)| format!(", arrival skew {} ms a step", two(ms)),
        ),
    }
}

fn slow_gemms(who: &str, own: f64, usual: f64, clocks: &Clocks, cost: &str) -> String {
    let below = 100.0 * (1.0 - own / usual);
    let figures = match clocks {
        Clocks::Held(held) => format!(", SM {:.0} of {:.0} MHz", held.mhz, held.usual_mhz),
        Clocks::Well { .. } | Clocks::Unknown => {
            format!(" ({} of {} TFLOPS)", two(own), two(usual))
        }
    };
    with_cost(&format!("{who}: GEMMs {below:.0} % slow"), &figures, cost)
}

fn growing_memory(of: &GrowingMemory) -> String {
    let who = who(&of.ranks, of.worst, Some(of.host.as_str()));
    let figures = format!(" by {} a step", figure::bytes(of.growth.per_step as u64));
    let left = format!(", full in {}", figure::age(of.left()));
    with_cost(&format!("{who}: GPU memory grows"), &figures, &left)
}

/// `AllReduce 100 of ec6e3145`
fn collective(of: &CollectiveCall) -> String {
    format!("{} {} of {}", of.operation.as_deref().unwrap_or("collective"), of.number, of.communicator)
}

impl Evidence {
    /// One line, of at most [`WIDTH`] columns with names and figures of usual length. The evidence of a hang
    /// does not contain hosts, so `ranks` are those of the finding, and `host` is the host of the first of
    /// them.
    pub(in crate::finding) fn headline(&self, ranks: &[Rank], host: Option<&str>) -> String {
        let first = ranks.first().copied().unwrap_or_default();
        let who = who(ranks, first, host);
        let named = |named: &Named| self::who(&named.ranks, named.worst, Some(named.host.as_str()));
        match self {
            Self::SlowGemms(of) => {
                let (own, usual) = (of.rates.tflops, of.rates.usual_tflops);
                slow_gemms(&named(&of.who), own, usual, &of.clocks, &arrival(&of.arrival))
            }
            Self::LateHost(of) => {
                let what = format!("{}: host is late, its GEMMs are not slow", named(&of.who));
                with_cost(&what, "", &arrival(&of.arrival))
            }
            Self::MoreWork(of) => {
                let what = format!("{}: {:.1}x the FLOPs", named(&of.who), of.times);
                with_cost(&what, " of ranks with the same work", &arrival(&of.arrival))
            }
            Self::Straggler(of) => straggler(of),
            Self::Pauses(of) => pauses(of, host),
            Self::Regression(of) => regression(of),
            Self::PastRun(of) => {
                let longer = 100.0 * (of.step_ms / of.past_step_ms - 1.0);
                let figures = format!(" ({} ms, {} in that run)", two(of.step_ms), two(of.past_step_ms));
                with_cost(&format!("steps are {longer:.0} % longer than on {}", of.day), &figures, "")
            }
            Self::SlowLink(of) => slow_link(of),
            Self::FullMemory(of) => {
                let who = self::who(&of.ranks, of.worst, Some(of.host.as_str()));
                let figures = format!(", {} left of {}", figure::bytes(of.free), figure::bytes(of.total));
                with_cost(&format!("{who}: GPU memory nearly full"), &figures, "")
            }
            Self::GrowingMemory(of) => growing_memory(of),
            Self::Xid(of) => {
                let who = self::who(&[of.rank], of.rank, Some(of.host.as_str()));
                let means = of.xid.means().map_or_else(String::new, |means| format!(" ({means})"));
                with_age(&format!("{who}: Xid {}", of.xid.code), &means, of.ago_s) + " ago"
            }
            Self::Exited(of) => exited(of),
            Self::Stopped(of) => {
                let who = self::who(&of.ranks, of.first, Some(of.host.as_str()));
                with_age(&format!("{who} has stopped running, the job hangs"), "", of.hung_s)
            }
            Self::Diverged(of) => {
                let at = of.number.map_or_else(String::new, |number| format!(" at number {number}"));
                with_age(&format!("{who}: NCCL calls diverge from the others'"), &at, of.hung_s)
            }
            Self::Forming(of) => forming(of, host),
            Self::NotEntered(of) => {
                let what = format!("{who} did not enter {}", collective(&of.collective));
                let wait = if of.waiting == 1 { "waits" } else { "wait" };
                with_age(&what, &format!(": {} {wait}", counted(of.waiting)), of.hung_s)
            }
            Self::Deadlock(of) => {
                let figures = format!(" ({}, {})", collective(&of.here), collective(&of.there));
                with_age(&format!("{who} wait for each other in two communicators"), &figures, of.hung_s)
            }
            Self::Mismatch(of) => mismatch(of, host),
            Self::OutOfStep(of) => {
                let figures = format!(", others {}", of.least);
                let communicator = &of.collective.communicator;
                let what = format!("{who} called {} collectives of {communicator}", of.most);
                with_age(&what, &figures, of.hung_s)
            }
            Self::NotLaunched(of) => {
                let what = format!("{who} did not launch {}", collective(&of.collective));
                with_age(&what, &format!(": in {}", of.call), of.hung_s)
            }
            Self::NotStarted(of) => {
                let at = collective(&of.collective);
                let gpu = if of.ranks.len() == 1 { "GPU has" } else { "GPUs have" };
                fitted([
                    format!("{who}: {gpu} not started {at}, {}", age(of.hung_s)),
                    format!("{who}: {gpu} not started {at}"),
                    format!("{who}: {at} not started"),
                ])
            }
            Self::InKernel(of) => {
                let what =
                    format!("{} does not end on {}", collective(&of.collective), counted(of.ranks.len()));
                with_age(&what, &format!(", first {who}"), of.hung_s)
            }
            Self::Partial(of) => {
                let what = format!("{who}: {} does not end", collective(&of.collective));
                with_age(&what, &format!(", it ended on {}", counted(of.others)), of.hung_s)
            }
            Self::Unmatched(of) => {
                let what = format!("{who} called {} sends and receives", of.calls);
                with_age(&what, &format!(", similar ranks {}", of.usual), of.hung_s)
            }
            Self::Exchanging(of) => exchanging(of, host),
            Self::Idle(of) => idle(of, &who),
            Self::Elsewhere(of) => {
                with_age(&format!("{} of {} ranks seen: no progress", of.seen, of.world), "", of.hung_s)
            }
            Self::Aged(of, seconds) => format!("{} ago: {}", age(*seconds), of.headline(ranks, host)),
            Self::Shared(of, neighbours) => shared(of, neighbours, ranks, host),
            Self::OnGpus(of, gpus) => {
                on_gpus(of, culprits_kernel(ranks, gpus), &who, of.headline(ranks, host))
            }
            Self::Sampled(of, _) | Self::At(of, _) | Self::Ended(of, _) => of.headline(ranks, host),
        }
    }
}

/// With the kernel that a core dump shows, if there is one; `line` is the headline without it.
fn on_gpus(of: &Evidence, kernel: Option<&str>, who: &str, line: String) -> String {
    let (Evidence::NotStarted(of), Some(kernel)) = (of, kernel) else { return line };
    let runs = if of.ranks.len() == 1 { "GPU runs" } else { "GPUs run" };
    let at = format!("collective {} not started", of.collective.number);
    fitted([
        format!("{who}: {runs} {kernel}, {at}, {}", age(of.hung_s)),
        format!("{who}: {runs} {kernel}, {at}"),
        format!("{who}: {runs} {kernel}"),
        line,
    ])
}

fn slow_link(of: &SlowLink) -> String {
    let below = 100.0 * (1.0 - of.gb_s / of.usual_gb_s);
    let through = of.passes.as_ref();
    let through = through.map_or_else(String::new, |host| format!(" through {}", short(host.as_str())));
    let what = format!("{} of {}{through}: {below:.0} % slow", of.operation, of.communicator);
    with_cost(&what, &format!(" ({} of {} GB/s)", two(of.gb_s), two(of.usual_gb_s)), "")
}

fn idle(of: &Idle, who: &str) -> String {
    let step = of.step.map_or_else(String::new, |step| format!(" after step {step}"));
    with_age(&format!("{who}: no step and no work{step}"), "", of.hung_s)
}

fn straggler(of: &Straggler) -> String {
    let who = who(&[of.rank], of.rank, Some(of.host.as_str()));
    let cost = costs(of.step_ms.map(|step| of.pct * step / 100.0), of.pct);
    let (what, figures) = match &of.cause {
        Cause::SlowGemms { tflops, usual_tflops, clocks, .. } => {
            return slow_gemms(&who, *tflops, *usual_tflops, clocks, &cost);
        }
        Cause::MoreWork { times } => (format!("{times:.2}x the others' FLOPs"), String::new()),
        Cause::WaitsLess { .. } => ("work reaches its GPU late".to_owned(), String::new()),
        Cause::LacksCpu(lacks) => ("lacks CPU time".to_owned(), format!(" ({:.0} %)", lacks.share_pct())),
        Cause::MoreWaits { per_step, usual_per_step } => (
            format!("waits for its GPU {per_step:.0} times a step"),
            format!(" (others {usual_per_step:.0})"),
        ),
        Cause::HostWork { work, pct, .. } => (work.name().to_owned(), format!(" {pct:.0} % of its time")),
        Cause::SharedGpu => ("enters collectives last".to_owned(), String::new()),
        Cause::Unknown => ("enters collectives last, cause unknown".to_owned(), String::new()),
    };
    with_cost(&format!("{who}: {what}"), &figures, &cost)
}

fn pauses(of: &Pauses, host: Option<&str>) -> String {
    let figures = format!(", {:.0} in {:.0} s", of.pauses, of.window_s);
    let late = of.late.as_ref().map_or(&of.ranks, |late| &late.ranks);
    let before = match late.first() {
        Some(&first) => format!("{}: ", who(late, first, host)),
        None => String::new(),
    };
    with_cost(&format!("{before}single long steps"), &figures, &costs(None, of.lost_pct))
}

/// With the other processes on the GPU of its rank, which are the cause of longer steps.
fn shared(of: &Evidence, neighbours: &Neighbours, ranks: &[Rank], host: Option<&str>) -> String {
    if let Some(of) = of.regression() {
        let longer = 100.0 * (of.after_ms / of.before_ms - 1.0);
        let what = format!("{}: {}", who(ranks, neighbours.rank, host), neighbours.shares());
        return with_cost(&what, &format!(", steps {longer:.0} % longer"), "");
    }
    let line = of.headline(ranks, host);
    fitted([format!("{line}, {}", neighbours.shares()), line])
}

fn regression(of: &Regression) -> String {
    let Regression { before_ms, after_ms, .. } = of;
    let longer = 100.0 * (after_ms / before_ms - 1.0);
    let why = if let Some(part) = &of.slower {
        let who = part.ranks.first().map_or_else(|| part.to_string(), |&first| who(&part.ranks, first, None));
        format!(", GEMMs of {who} {:.0} % slow", of.rate_pct.unwrap_or(f64::NAN))
    } else if of.is_compute {
        format!(", all GEMMs {:.0} % slow", of.rate_pct.unwrap_or(f64::NAN))
    } else if let Some(late) = &of.late {
        let first = late.ranks.first().copied().unwrap_or_default();
        format!(", {} late", who(&late.ranks, first, None))
    } else if let Some(lacks) = &of.lacks_cpu {
        let first = lacks.ranks.first().copied().unwrap_or_default();
        format!(", {} short of CPU time ({:.0} %)", who(&lacks.ranks, first, None), lacks.share_pct())
    } else {
        String::new()
    };
    with_cost(&format!("steps take {} ms, {longer:.0} % longer than before", two(*after_ms)), &why, "")
}

fn exited(of: &Exited) -> String {
    let who = who(&[of.rank], of.rank, Some(of.host.as_str()));
    let exit = of.exit.as_ref().filter(|exit| exit.cause() != EndCause::Dead);
    let brief = match exit.map(|exit| (exit.cause(), &exit.ending)) {
        Some((EndCause::Oom, _)) => "was OOM-killed".to_owned(),
        Some((EndCause::NcclError, _)) => "ended with an NCCL error".to_owned(),
        Some((EndCause::CudaError, _)) => "ended with a CUDA error".to_owned(),
        Some((EndCause::Exception, _)) => "ended with an exception".to_owned(),
        Some((_, Ending::Signal(signal))) => format!("was killed by signal {}", signal.number),
        Some((_, Ending::Code(code))) => format!("exited with code {code}"),
        _ => "ended without an orderly exit".to_owned(),
    };
    let ago = format!("{} ago", age(of.ago_s));
    let step = of.step.map_or_else(String::new, |step| format!(", at step {step}"));
    let ending = exit.map_or_else(|| brief.clone(), |exit| exit.sentence());
    fitted([
        format!("{who} {ending}, {ago}{step}"),
        format!("{who} {ending}, {ago}"),
        format!("{who} {brief}, {ago}{step}"),
        format!("{who} {brief}, {ago}"),
    ])
}

fn forming(of: &Forming, host: Option<&str>) -> String {
    let (join, form) = match of.what {
        Together::Create => ("join a communicator".to_owned(), "to create a communicator".to_owned()),
        Together::Destroy => ("leave a communicator".to_owned(), "to destroy a communicator".to_owned()),
        Together::Meet(place) => (format!("come to {place}"), format!("in {place}")),
    };
    let inside = of.inside.len();
    let wait = if inside == 1 { "waits" } else { "wait" };
    let waiting = format!("{} {wait} {form}", counted(inside));
    match &of.missing {
        Missing::Nobody => with_age(&format!("all ranks wait {form}"), "", of.hung_s),
        Missing::Unseen(unseen) => {
            with_age(&waiting, &format!(", {} never seen", counted(unseen.len())), of.hung_s)
        }
        Missing::Unknown => with_age(&waiting, ", which rank is missing is unknown", of.hung_s),
        Missing::Ranks { ranks, .. } => {
            let first = ranks.first().copied().unwrap_or_default();
            let what = format!("{} did not {join}", who(ranks, first, host));
            with_age(&what, &format!(": {} {wait}", counted(inside)), of.hung_s)
        }
    }
}

fn exchanging(of: &Exchanging, host: Option<&str>) -> String {
    if let Messages::NotReached(behind) = &of.messages {
        let first = behind.first().copied().unwrap_or_default();
        let what = format!("{} did not start a send or receive", who(behind, first, host));
        return with_age(&what, &format!(": {} wait", counted(of.ranks.len())), of.hung_s);
    }
    let wait = format!("{} wait for their GPUs", counted(of.ranks.len()));
    with_age(&wait, ", after sends and receives", of.hung_s)
}

fn mismatch(of: &Mismatch, host: Option<&str>) -> String {
    let usual = collective(&of.collective);
    match (of.called.first(), of.most) {
        (Some((ranks, operation, _)), Some(most)) => {
            let first = ranks.first().copied().unwrap_or_default();
            let what = format!("{} called {operation} for {usual}", who(ranks, first, host));
            with_age(&what, &format!(", {} did not", counted(most)), of.hung_s)
        }
        _ => with_age(&format!("ranks disagree on {usual}"), "", of.hung_s),
    }
}

/// The evidence's line, with the finding's cost if the line has none.
pub(in crate::finding) fn joined(line: String, cost: Option<Cost>) -> String {
    let known = ["costs ", "arrival skew "].iter().any(|words| line.contains(words));
    match cost.filter(|_| !known) {
        Some(cost) => {
            fitted([format!("{line}{}{}", costs(cost.ms_per_step, cost.pct), once(cost.behind)), line])
        }
        None => line,
    }
}
