//! Captures of pipelines, made from a schedule: each rank's acts in their order, and the times that follow
//! from them.

use std::collections::BTreeMap;

use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{
        Body, CapturePart, CaptureSheet, CapturedLabel, CapturedOperation, CapturedSpan, Frame, StepMark,
        example::capture::{BEGIN, MS, ORDER, part, sheet},
    },
    id::{CommunicatorId, Rank, Sequence, Step},
    unit::{Moment, Nanoseconds},
};

use crate::capture::{Capture, CapturedCommunicator};

/// What a rank does on its GPU. Times are microseconds.
#[derive(Clone, Debug)]
pub(super) enum Act {
    /// This many GEMMs.
    Compute { gemms: usize, took: u64 },
    /// Messages that are launched together: whether each is sent, and the stage at the other end.
    Exchange(Vec<(bool, usize)>),
    /// A collective with the other replicas of the stage.
    OfStage,
    /// A collective of all ranks.
    OfAll,
}

/// The time of a message and of a collective.
const TRANSFER: u64 = 200;

pub(super) struct Job {
    pub(super) stages: usize,
    pub(super) replicas: usize,
    pub(super) steps: usize,
    /// Whether single sends and receives are groups too.
    pub(super) is_grouped: bool,
    /// Whether sends end before their receives begin.
    pub(super) is_buffered: bool,
    /// The acts of a stage of a replica in a step.
    pub(super) acts: Box<dyn Fn(usize, usize, usize) -> Vec<Act>>,
}

/// One act with its start and end.
type Done = (Act, u64, u64);

impl Job {
    fn rank(&self, stage: usize, replica: usize) -> usize {
        stage * self.replicas + replica
    }

    /// The acts of each rank in each step, with their times.
    fn run(&self) -> Vec<Vec<Vec<Done>>> {
        let ranks = self.stages * self.replicas;
        let place = |rank: usize| (rank / self.replicas, rank % self.replicas);
        let acts: Vec<Vec<(usize, Act)>> = (0..ranks)
            .map(|rank| {
                let (stage, replica) = place(rank);
                let of = |step| (self.acts)(stage, replica, step).into_iter().map(move |act| (step, act));
                (0..self.steps).flat_map(of).collect()
            })
            .collect();
        let mut done: Vec<Vec<Vec<Done>>> = vec![vec![Vec::new(); self.steps]; ranks];
        let (mut now, mut next) = (vec![0; ranks], vec![0; ranks]);
        // When the n-th message from one rank to another was sent and received; likewise for collectives.
        let mut entered: BTreeMap<(usize, usize, usize), [Option<u64>; 2]> = BTreeMap::new();
        let mut met: BTreeMap<(usize, usize), BTreeMap<usize, u64>> = BTreeMap::new();
        let mut counts: Vec<BTreeMap<(usize, usize), usize>> = vec![BTreeMap::new(); ranks];
        let mut collectives = vec![[0, 0]; ranks];
        loop {
            let mut has_moved = false;
            for rank in 0..ranks {
                let Some((step, act)) = acts[rank].get(next[rank]) else { continue };
                let (stage, replica) = place(rank);
                let end = match act {
                    Act::Compute { took, .. } => Some(now[rank] + took),
                    Act::Exchange(messages) => {
                        let mut of_rank = counts[rank].clone();
                        let ends: Vec<Option<u64>> = messages
                            .iter()
                            .map(|&(is_sent, other)| {
                                let other = self.rank(other, replica);
                                let route = if is_sent { (rank, other) } else { (other, rank) };
                                let number = of_rank.entry(route).or_default();
                                let ends = entered.entry((route.0, route.1, *number)).or_default();
                                *number += 1;
                                has_moved |= ends[usize::from(!is_sent)].is_none();
                                ends[usize::from(!is_sent)].get_or_insert(now[rank]);
                                if self.is_buffered && is_sent {
                                    return Some(now[rank] + TRANSFER / 2);
                                }
                                Some(ends[0]?.max(ends[1]?) + TRANSFER)
                            })
                            .collect();
                        let ends: Option<Vec<u64>> = ends.into_iter().collect();
                        if ends.is_some() {
                            counts[rank] = of_rank;
                        }
                        ends.and_then(|ends| ends.into_iter().max())
                    }
                    Act::OfStage | Act::OfAll => {
                        let is_of_all = usize::from(matches!(act, Act::OfAll));
                        let set = if is_of_all == 1 { usize::MAX } else { stage };
                        let of = met.entry((set, collectives[rank][is_of_all])).or_default();
                        has_moved |= of.insert(rank, now[rank]).is_none();
                        let all = if is_of_all == 1 { ranks } else { self.replicas };
                        (of.len() == all).then(|| {
                            collectives[rank][is_of_all] += 1;
                            of.values().max().unwrap() + TRANSFER
                        })
                    }
                };
                if let Some(end) = end {
                    done[rank][*step].push((act.clone(), now[rank], end));
                    (now[rank], next[rank], has_moved) = (end, next[rank] + 1, true);
                }
            }
            if !has_moved {
                break;
            }
        }
        let all_done = acts.iter().zip(&next).all(|(acts, next)| acts.len() == *next);
        assert!(all_done, "the schedule hangs at {next:?}");
        done
    }

    /// The mean step by the ends of the last rank, without the first step, in milliseconds.
    pub(super) fn step_ms(&self) -> f64 {
        let done = self.run();
        let end = |step: usize| done.iter().map(|of| of[step].last().unwrap().2).max().unwrap() as f64;
        (end(self.steps - 1) - end(0)) / 1e3 / (self.steps - 1) as f64
    }

    /// Its capture. Each rank is on its own host, whose clock is some seconds ahead.
    pub(super) fn capture(&self) -> Capture {
        let done = self.run();
        let mut capture = Capture::default();
        let ranks: Vec<u32> = (0..done.len() as u32).collect();
        let frame = |rank: u32, body| Frame {
            host: format!("host-{rank}").as_str().into(),
            number: 0,
            now: Moment(0),
            lost: 0,
            body,
        };
        capture.take(&frame(0, Body::CaptureSheet(CaptureSheet { order: ORDER, ..sheet(&ranks) })));
        for (rank, steps) in done.iter().enumerate() {
            let part = self.part(rank, steps);
            capture.take(&frame(rank as u32, Body::CapturePart(part)));
        }
        for replica in 0..self.replicas {
            let members =
                (0..self.stages).map(|stage| (stage as u32, Rank(self.rank(stage, replica) as u32)));
            let known = CapturedCommunicator {
                name: String::new(),
                size: self.stages as u32,
                members: members.collect(),
            };
            capture.communicators.insert(CommunicatorId(100 + replica as u64), known);
        }
        capture
    }

    fn part(&self, rank: usize, steps: &[Vec<Done>]) -> CapturePart {
        let mut new = part(rank as u32, 0);
        let begin = BEGIN + rank as u64 * 5000 * MS;
        let (stage, replica) = (rank / self.replicas, rank % self.replicas);
        new.operations.clear();
        let mut recorder = Recorder { part: &mut new, at: begin, begin, messages: 0, collectives: [0; 2] };
        let mut marks = vec![StepMark { completed: Step(40), at: Moment(begin) }];
        for (step, acts) in steps.iter().enumerate() {
            for (act, from, to) in acts {
                match act {
                    Act::Compute { gemms, took } => {
                        let each = took / *gemms as u64;
                        for number in 0..*gemms as u64 {
                            recorder.gpu(0, None, from + number * each, from + (number + 1) * each);
                        }
                    }
                    Act::Exchange(messages) => {
                        recorder.exchange(
                            messages,
                            CommunicatorId(100 + replica as u64),
                            self.is_grouped,
                            (*from, *to),
                        );
                    }
                    Act::OfStage => recorder.collective(0, 200 + stage as u64, (*from, *to)),
                    Act::OfAll => recorder.collective(1, 300, (*from, *to)),
                }
            }
            // The host waits for the GPU at the end of a step.
            let end = begin + acts.last().unwrap().2 * 1000;
            marks.push(StepMark { completed: Step(41 + step as u64), at: Moment(end.max(recorder.at + 1)) });
        }
        new.since = Moment(begin);
        let account = new.account.as_mut().unwrap();
        (account.marks, account.operations) = (marks, new.operations.len() as u64);
        new
    }
}

/// The operations of one rank.
struct Recorder<'a> {
    part: &'a mut CapturePart,
    at: u64,
    begin: u64,
    messages: u64,
    collectives: [u64; 2],
}

impl Recorder<'_> {
    fn label(&mut self, label: &CapturedLabel) -> u32 {
        let known = self.part.labels.iter().position(|known| known == label);
        known.unwrap_or_else(|| {
            self.part.labels.push(label.clone());
            self.part.labels.len() - 1
        }) as u32
    }

    fn push(&mut self, label: u32, sequence: Option<Sequence>, span: CapturedSpan, at: u64) {
        let after = Nanoseconds(at - self.at);
        self.at = at;
        self.part.operations.push(CapturedOperation { label, after, thread: 0, sequence, span });
    }

    /// An operation that is launched when it begins, at least 1 ns after the one before it.
    fn gpu(&mut self, label: u32, sequence: Option<Sequence>, from: u64, to: u64) {
        let begin = self.begin + from * 1000;
        let at = begin.max(self.at + 1);
        let span = CapturedSpan::Gpu {
            stream: 0,
            late: begin as i64 - at as i64,
            took: Nanoseconds((to - from) * 1000),
        };
        self.push(label, sequence, span, at);
    }

    fn collective(&mut self, which: usize, id: u64, (from, to): (u64, u64)) {
        let label = self.label(&single(CommunicatorId(id), Operation::AllReduce));
        let sequence = Sequence(self.collectives[which]);
        self.collectives[which] += 1;
        self.gpu(label, Some(sequence), from, to);
    }

    fn exchange(
        &mut self,
        messages: &[(bool, usize)],
        communicator: CommunicatorId,
        is_grouped: bool,
        (from, to): (u64, u64),
    ) {
        let operation = |is_sent| if is_sent { Operation::Send } else { Operation::Recv };
        let is_group = is_grouped || messages.len() > 1;
        if is_group {
            let label = self.label(&CapturedLabel::Group {
                communicator,
                operation: Operation::SendRecv,
                bytes: 8,
                bus_bytes: 8,
                collectives: 0,
                plan: None,
            });
            self.gpu(label, Some(Sequence(self.messages)), from, to);
        }
        // The members of a group are launched at the same time, so they are in any order.
        let mut numbered: Vec<_> = messages.iter().copied().zip(self.messages..).collect();
        self.messages += messages.len() as u64;
        if communicator.0 % 2 == 1 {
            numbered.reverse();
        }
        for ((is_sent, other), number) in numbered {
            let label = self.label(&single(communicator, operation(is_sent)));
            let sequence = Some(CapturedOperation::sequence_of(other as u32, number));
            if is_group {
                self.push(label, sequence, CapturedSpan::Unknown, self.at);
            } else {
                self.gpu(label, sequence, from, to);
            }
        }
    }
}

fn single(communicator: CommunicatorId, operation: Operation) -> CapturedLabel {
    let datatype = DataType::Bfloat16;
    CapturedLabel::Collective { communicator, operation, datatype, bytes: 8, bus_bytes: 8, plan: None }
}
