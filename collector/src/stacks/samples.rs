//! Samples Python stacks of ranks during a capture. As for single stacks, a separate process of this program
//! reads each rank. It begins when the first step begins by the rank's own ledger, and ends when the rank has
//! sent its steps.
//!
//! ```text
//! Request::Sample ──▶ Samplers ──order──▶ sampler (a process per rank) ──process_vm_readv──▶ rank
//!        viewer ◀──PythonSamples──        ◀──────────parts──────────
//! ```
//!
//! Nothing is kept here: a part goes to the viewer as soon as it is complete. A sampler waits until its parts
//! are taken.

mod part;
mod sample;
mod sampler;
mod schedule;

use std::{os::fd::RawFd, path::PathBuf, process::Child, time::Instant};

pub use sample::sample_python;
use sampler::Sampler;
use xpu_wire::{
    frame::{PythonSamples, SampleAccount, SampleOrder},
    id::{JobName, Rank},
};

use super::{Reach, Target};
use crate::address::Address;

/// Ranks sampled at the same time: enough for all ranks of a large host.
const AT_ONCE: usize = 64;

/// The samples to send, and their recipients.
pub(crate) type Parts = Vec<(Address, PythonSamples)>;

#[derive(Debug)]
pub(crate) struct Samplers {
    /// The program that samples, which is this program.
    program: PathBuf,
    running: Vec<Sampler>,
    /// Samplers that have ended or were killed, and are not reaped yet.
    ending: Vec<Child>,
}

impl Samplers {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program, running: Vec::new(), ending: Vec::new() }
    }

    /// Begins to sample a rank. A repeated order changes nothing. Returns the reason if the order is refused.
    pub(crate) fn begin(
        &mut self,
        target: Target,
        ledger: Option<u32>,
        order: &SampleOrder,
        viewer: &Address,
        now: Instant,
    ) -> Option<PythonSamples> {
        let of_rank = |sampler: &&Sampler| sampler.is_of(&target.job, target.rank);
        let refused = |why: &str| Some(refusal(&target, order, why));
        match self.running.iter().position(|sampler| of_rank(&sampler)) {
            Some(at) if self.running[at].number() == order.capture.number => return None,
            // The results of an abandoned attempt are not needed.
            Some(at) if self.running[at].is_ending() => {
                let given_up = self.running.swap_remove(at);
                self.ending.push(given_up.finish());
            }
            Some(_) => return refused("another capture samples it: try again when it has ended"),
            None => {}
        }
        match target.reach {
            Reach::Here => {}
            Reach::Gone => return refused("its process is gone"),
            Reach::Elsewhere => {
                return refused(
                    "it is in another container than this collector: start one there with `xpu-top run`",
                );
            }
            Reach::Foreign => {
                return refused("it belongs to another user: start a collector as its user");
            }
        }
        if self.running.len() >= AT_ONCE {
            return refused(
                "too many ranks of this host are sampled at the same time: name some with --ranks",
            );
        }
        match Sampler::start(&self.program, &target, ledger, order, viewer, now) {
            Ok(sampler) => {
                self.running.push(sampler);
                None
            }
            Err(error) => refused(&format!("cannot start a process to sample it: {error}")),
        }
    }

    /// Ends the sampler of a rank that has sent its steps or will not send them. It sends the samples so far.
    pub(crate) fn end(&mut self, job: &JobName, rank: Rank, number: u64) {
        let its = self.running.iter_mut().filter(|sampler| sampler.is_of(job, rank));
        its.filter(|sampler| sampler.number() == number).for_each(Sampler::end);
    }

    /// Ends the samplers of all ranks of a capture.
    pub(crate) fn end_all(&mut self, number: u64) {
        self.running.iter_mut().filter(|sampler| sampler.number() == number).for_each(Sampler::end);
    }

    /// The descriptors to poll.
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        self.running.iter().map(Sampler::descriptor)
    }

    /// Takes complete parts. Never blocks.
    pub(crate) fn turn(&mut self, now: Instant) -> Parts {
        self.ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
        let mut parts = Vec::new();
        for mut sampler in std::mem::take(&mut self.running) {
            let has_ended = sampler.take(now);
            parts.extend(sampler.parts());
            if has_ended {
                parts.extend(sampler.last());
                self.ending.push(sampler.finish());
            } else {
                self.running.push(sampler);
            }
        }
        parts
    }
}

/// Kills the samplers. Without a collector they end by themselves, but would sample their ranks until then.
impl Drop for Samplers {
    fn drop(&mut self) {
        for sampler in self.running.drain(..) {
            let _ = sampler.finish().wait();
        }
    }
}

fn refusal(target: &Target, order: &SampleOrder, why: &str) -> PythonSamples {
    PythonSamples {
        number: order.capture.number,
        job: target.job.clone(),
        rank: target.rank,
        account: Some(SampleAccount { why: Some(why.to_owned()), ..of_order(order) }),
        ..PythonSamples::default()
    }
}

fn of_order(order: &SampleOrder) -> SampleAccount {
    SampleAccount { rate: order.rate, natively: order.natively, ..SampleAccount::default() }
}
