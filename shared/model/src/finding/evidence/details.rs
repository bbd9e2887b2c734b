//! The evidence that is shown below a headline: the clauses that the headline leaves out.

use xpu_wire::{frame::EndCause, id::Rank};

use super::{
    super::{Clocks, hang::Doing},
    Evidence, aged,
    cost::{Cause, Straggler},
    exit::Exited,
    hang::{Elsewhere, Forming, Missing, NotEntered, Stopped},
    link::SlowLink,
    pace::{ALIKE, Pauses, Regression},
    slow::{Arrival, LateHost, MoreWork, Named, Rates, SlowGemms, Waiting},
};
use crate::{
    figure,
    phrase::{self, counted},
};

/// Clauses of a sentence, without those that the headline has.
struct Clauses<'a> {
    headline: &'a str,
    clauses: Vec<String>,
}

impl Clauses<'_> {
    fn add(&mut self, clause: impl Into<String>) {
        let clause = clause.into();
        if !self.headline.contains(&clause) {
            self.clauses.push(clause);
        }
    }

    /// Adds all ranks, if the headline names only the first.
    fn ranks(&mut self, ranks: &[Rank]) {
        if ranks.len() > 1 {
            self.add(phrase::ranks(ranks));
        }
    }

    fn arrival(&mut self, arrival: &Arrival) {
        let last = match arrival.waiting {
            None => "its arrival skew is unknown".to_owned(),
            Some(Waiting { last_pct, .. }) => format!("last into {last_pct:.0} % of its collectives"),
        };
        let age = arrival.as_of_s.map(|age| format!(", as of {age:.0} s ago: no progress since"));
        self.add(last + &age.unwrap_or_default());
    }

    fn held(&mut self, clocks: &Clocks) {
        if let Clocks::Held(held) = clocks {
            self.add(held.to_string());
        }
    }
}

impl Evidence {
    /// The sentence without the parts that this headline has; empty if nothing is left.
    pub(in crate::finding) fn details(&self, headline: &str) -> String {
        let mut to = Clauses { headline, clauses: Vec::new() };
        self.add_details(&mut to);
        to.clauses.join("; ")
    }

    fn add_details(&self, to: &mut Clauses<'_>) {
        match self {
            Self::SlowGemms(of) => slow_gemms(of, to),
            Self::LateHost(of) => late_host(of, to),
            Self::MoreWork(of) => more_work(of, to),
            Self::Straggler(of) => straggler(of, to),
            Self::Pauses(of) => pauses(of, to),
            Self::Regression(of) => regression(of, to),
            Self::PastRun(of) => {
                to.add(of.when.clone());
                to.add(of.why.clone());
            }
            Self::SlowLink(of) => slow_link(of, to),
            Self::FullMemory(of) => to.ranks(&of.ranks),
            Self::GrowingMemory(of) => {
                to.ranks(&of.ranks);
                to.add(of.interval());
            }
            Self::Xid(_) => to.add("the driver reported it"),
            Self::Exited(of) => exited(of, to),
            Self::Stopped(of) => stopped(of, to),
            // The record's sentence names both calls, and the headline names none.
            Self::Diverged(of) => to.add(of.sentence.clone()),
            Self::Forming(of) => forming(of, to),
            Self::NotEntered(of) => not_entered(of, to),
            Self::Deadlock(of) => {
                to.ranks(&of.ranks);
                to.add("some entered the first, others the second, and neither group entered the other's");
            }
            Self::Mismatch(of) => {
                for (ranks, operation, bytes) in &of.called {
                    to.add(format!(
                        "{}: {operation} of {}",
                        phrase::ranks(ranks),
                        figure::exact_bytes(*bytes)
                    ));
                }
                if of.most.is_some() {
                    to.add(format!("the others: {}", of.collective));
                }
            }
            Self::OutOfStep(of) => {
                to.ranks(&of.ranks);
                to.add(format!(
                    "all wait for the GPU; the ranks called numbers {} to {}, none of which is known to have ended",
                    of.collective.number,
                    of.least.saturating_sub(1),
                ));
            }
            Self::NotLaunched(of) => {
                to.ranks(&of.ranks);
                to.add(format!("inside {} for {:.0} s", of.call, of.inside_s));
            }
            Self::NotStarted(of) => {
                to.ranks(&of.ranks);
                to.add(of.reason());
            }
            Self::InKernel(of) => {
                to.ranks(&of.ranks);
                to.add(format!("all {} ranks launched it", of.launched));
                if of.alike > 0 {
                    to.add(format!("{} similar communicators are in the same state", of.alike));
                }
            }
            Self::Partial(of) => to.ranks(&of.ranks),
            Self::Unmatched(of) => {
                to.ranks(&of.ranks);
                to.add(format!("ranks with the same role: most of {} called {}", of.of, of.usual));
            }
            Self::Exchanging(of) => to.ranks(&of.ranks),
            Self::Elsewhere(of) => {
                if let Doing::Inside(call, seconds) = &of.doing {
                    to.add(format!("rank {} has been inside {call} for {seconds:.0} s", of.first));
                }
                to.add(Elsewhere::UNKNOWN.to_owned());
            }
            Self::Idle(of) => {
                to.ranks(&of.ranks);
                if let Some(usual) = of.usual_step_ms {
                    to.add(format!("a step usually took {usual:.1} ms"));
                }
            }
            Self::Sampled(of, seen) => {
                of.add_details(to);
                to.add(seen.to_string());
            }
            Self::Shared(of, neighbours) => {
                of.add_details(to);
                to.add(neighbours.to_string());
            }
            Self::Aged(of, age) => {
                of.add_details(to);
                to.add(aged(*age));
            }
            Self::OnGpus(of, _) | Self::At(of, _) => of.add_details(to),
            Self::Ended(of, end) => {
                of.add_details(to);
                to.add(format!("then {end}"));
            }
        }
    }
}

/// `640.0 TFLOPS is the median of 64 ranks with the same work`
fn compared(Rates { usual_tflops, ranks, .. }: Rates) -> String {
    match ranks {
        None => format!("its own earlier rate was {usual_tflops:.1} TFLOPS"),
        Some(ranks) => format!(
            "{usual_tflops:.1} TFLOPS is the median of {} ranks with the same work",
            figure::count(ranks as u64)
        ),
    }
}

fn named(who: &Named, to: &mut Clauses<'_>) {
    to.ranks(&who.ranks);
}

fn slow_gemms(of: &SlowGemms, to: &mut Clauses<'_>) {
    named(&of.who, to);
    to.held(&of.clocks);
    to.arrival(&of.arrival);
    to.add(compared(of.rates));
}

fn late_host(of: &LateHost, to: &mut Clauses<'_>) {
    named(&of.who, to);
    to.arrival(&of.arrival);
    to.add(format!("its GEMMs run at {:.1} TFLOPS", of.rates.tflops));
    to.add(compared(of.rates));
}

fn more_work(of: &MoreWork, to: &mut Clauses<'_>) {
    named(&of.who, to);
    let Rates { tflops, usual_tflops, ranks } = of.rates;
    to.add(format!(
        "compared with {} ranks with the same communicators, at the same or a higher rate ({tflops:.1} TFLOPS, theirs {usual_tflops:.1})",
        ranks.unwrap_or(0)
    ));
    to.arrival(&of.arrival);
}

fn straggler(of: &Straggler, to: &mut Clauses<'_>) {
    let (last, timed) = (figure::count(of.last.into()), figure::count(of.timed.into()));
    to.add(format!("the others wait for it alone at {last} of {timed} timed collectives"));
    match &of.cause {
        Cause::SlowGemms { usual_tflops, is_past, clocks, .. } => {
            let whose = if *is_past { "its own earlier rate" } else { "the others' rate" };
            to.held(clocks);
            to.add(format!("{whose} is {usual_tflops:.1} TFLOPS"));
        }
        cause => {
            if let Some((own, usual)) = of.tflops {
                to.add(format!("its GEMMs run at {own:.1} TFLOPS, the others' at {usual:.1}"));
            }
            // The headline, or the clause about the other processes, has these in full.
            if !matches!(cause, Cause::MoreWork { .. } | Cause::SharedGpu | Cause::Unknown) {
                to.add(cause.to_string());
            }
        }
    }
    if let Some(rest) = of.rest() {
        to.add(rest);
    }
}

fn pauses(of: &Pauses, to: &mut Clauses<'_>) {
    match (&of.late, &of.ranks[..]) {
        (Some(late), _) => to.add(late.to_string()),
        (None, []) => to.add("no single rank causes them"),
        (None, ranks) => {
            to.add(format!("{} waited less than the others by the same time", phrase::ranks(ranks)));
        }
    }
}

fn regression(of: &Regression, to: &mut Clauses<'_>) {
    to.add(format!("{:.1} ms before", of.before_ms));
    to.add(match of.work_pct {
        None => "the FLOPs of a step are unknown".to_owned(),
        Some(more) if more.abs() < ALIKE => "the FLOPs of a step are the same".to_owned(),
        Some(more) => format!("{more:+.0} % FLOPs a step"),
    });
    if !of.is_compute {
        to.add(of.rate());
    }
    if of.slower.is_some() {
        to.add("those of the others are as fast as before");
    }
    if let Some(held) = &of.clocks {
        to.add(held.to_string());
    }
    if let Some(late) = &of.late {
        to.add(late.to_string());
    }
    if let Some(lacks) = &of.lacks_cpu {
        to.add(lacks.to_string());
    }
}

fn slow_link(of: &SlowLink, to: &mut Clauses<'_>) {
    let against = match of.groups {
        None => "before".to_owned(),
        Some(groups) => format!("median of {groups} similar groups"),
    };
    to.add(format!("{against}: {:.1} GB/s, measured after all {} ranks entered", of.usual_gb_s, of.size));
    if of.slow > 1 {
        to.add(format!("{} of {} communicators are slow", of.slow, of.known));
    }
}

fn exited(of: &Exited, to: &mut Clauses<'_>) {
    let exit = of.exit.as_ref().filter(|exit| exit.cause() != EndCause::Dead);
    if let Some(exit) = exit {
        to.add(exit.sentence());
    } else if !of.was_seen {
        to.add("its end was not observed, so the time of its last report is shown");
    }
    if let Some(step) = of.step {
        to.add(format!("at step {step}"));
    }
    to.add(format!("pid {}", of.pid));
    for clause in [of.sender(), of.followers()].into_iter().flatten() {
        to.add(clause);
    }
}

fn stopped(of: &Stopped, to: &mut Clauses<'_>) {
    to.ranks(&of.ranks);
    let step = of.step.map_or_else(String::new, |step| format!(" since step {step}"));
    to.add(format!("pid {} exists and has reported nothing{step}", of.pid));
}

fn forming(of: &Forming, to: &mut Clauses<'_>) {
    match &of.missing {
        Missing::Nobody | Missing::Unseen(_) => {}
        Missing::Unknown => to.add(format!("inside: {}", phrase::ranks(&of.inside))),
        Missing::Ranks { ranks, doing } => {
            to.ranks(ranks);
            to.add(doing.to_string());
        }
    }
}

fn not_entered(of: &NotEntered, to: &mut Clauses<'_>) {
    to.ranks(&of.ranks);
    to.add(format!("{} {}", counted(of.waiting), if of.waiting == 1 { "waits" } else { "wait" }));
    if let Some(site) = of.call_site() {
        to.add(site);
    }
    to.add(match &of.ranks[..] {
        [first, _, ..] => format!("rank {first}: {}", of.doing),
        _ => of.doing.to_string(),
    });
}
