//! A simulated job with faults: the frames of [`Simulation`], second by second, with faults added.

use xpu_simulation::Simulation;
use xpu_wire::{
    collective::Operation,
    frame::{Body, CommunicatorState, Frame, Inside, Life, RankDigest},
    id::{CommunicatorId, Rank},
    ledger::Call,
    sampling,
    unit::{Moment, Nanoseconds},
};

use crate::{
    finding::{Finding, examine},
    job::{Job, Jobs},
};

/// The communication pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// All ranks do the same, in one communicator.
    Data,
    /// Stages: one communicator per stage, with its ranks only, and one communicator of all ranks.
    Pipeline { stages: u32 },
    /// Same as `Data`, but every second collective distributes tokens.
    Experts,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// Its GPU is slower by this factor.
    Compute { rank: u32, factor: f64 },
    /// It loses this many milliseconds a step.
    Host { rank: u32, ms: f64 },
    /// Same as `Host`, but only in one second of `every`.
    Pauses { rank: u32, ms: f64, every: u64 },
    /// Some other rank has more work in every step, by this many milliseconds at most.
    Imbalance { ms: f64 },
    /// All ranks are late by chance, by this many milliseconds at most.
    Jitter { ms: f64 },
    /// All GPUs' rates differ by chance, by this share at most.
    Spread { share: f64 },
    /// A stage's GEMMs run at this share of the others' rate, with other shapes, and the stage is late in the
    /// communicator of all ranks.
    SlowStage { stage: u32, share: f64, ms: f64 },
    /// Its GEMMs run concurrently with kernels that wait for others, and are slower by this factor. No rank
    /// waits for it.
    Crowded { rank: u32, factor: f64 },
    /// Threads wait for the GPU for half of the time, the threads of this rank for this much less.
    Waits { rank: u32, less: f64 },
    /// It waits for its GPU this many more times in a step.
    Items { rank: u32, calls: u64 },
    /// Transfers take up to this share longer, by chance, for two seconds at a time.
    Scatter { share: f64 },
    /// Transfers take this multiple.
    Link { factor: f64 },
    /// A rank with more GEMMs than the others, late by this much: its work, not its fault.
    MoreWork { rank: u32, factor: f64, ms: f64 },
}

/// The second in which a link becomes slow, unless [`Cluster::from`] is set. The seconds before it are its
/// past.
pub(super) const LINK_FROM: u64 = 30;

/// A rank's digest once the job hangs.
type HungDigest = Box<dyn Fn(u32, &mut RankDigest)>;

pub(super) struct Cluster {
    pub simulation: Simulation,
    layout: Layout,
    faults: Vec<Fault>,
    /// The second in which the faults begin.
    pub from: u64,
    /// Share of the time that the GEMMs of a rank that is never late wait for the last rank to enter. By
    /// default, GEMMs wait only for transfers, as in the simulation.
    pub exposed: Option<f64>,
    /// Share of the time, in addition, that the GEMMs of each rank wait for transfers.
    pub transfers: f64,
    /// Hosts that report.
    pub hosts: usize,
    is_stuck: Option<(u64, HungDigest)>,
    timed: Vec<(f64, f64)>,
    blocked: Vec<f64>,
    waited: Vec<f64>,
    calls: Vec<u64>,
    jobs: Jobs,
    pub second: u64,
}

pub(super) const WORLD: CommunicatorId = CommunicatorId(0x9ca7_92c9_0000_0001);

impl Cluster {
    pub(super) fn new(seed: u64, ranks: u32, layout: Layout, faults: &[Fault]) -> Self {
        let ranks_per_host = ranks.min(8);
        Self {
            simulation: Simulation::new(seed, ranks / ranks_per_host, ranks_per_host),
            layout,
            faults: faults.to_vec(),
            from: 0,
            exposed: None,
            transfers: 0.0,
            hosts: usize::MAX,
            is_stuck: None,
            timed: vec![(0.0, 0.0); ranks as usize],
            blocked: vec![0.0; ranks as usize],
            waited: vec![0.0; ranks as usize],
            calls: vec![0; ranks as usize],
            jobs: Jobs::default(),
            second: 0,
        }
    }

    /// From second `at` on, nothing moves, and every rank reports `change`.
    pub(super) fn hang_from(mut self, at: u64, change: impl Fn(u32, &mut RankDigest) + 'static) -> Self {
        self.is_stuck = Some((at, Box::new(change)));
        self
    }

    pub(super) fn run(&mut self, seconds: u64) -> &mut Self {
        for _ in 0..seconds {
            self.second += 1;
            let standing_since = self.is_stuck.as_ref().map(|(at, _)| *at).filter(|at| self.second > *at);
            let mut frames = self.simulation.digests(standing_since.unwrap_or(self.second));
            frames.truncate(self.hosts);
            for frame in &mut frames {
                frame.now = self.now();
                let Body::Digest(digest) = &mut frame.body else { unreachable!() };
                for digest in &mut digest.ranks {
                    self.write(digest, standing_since.is_some());
                }
                self.jobs.fold(frame);
            }
        }
        self
    }

    /// Adds other frames.
    pub(super) fn fold(&mut self, bodies: impl IntoIterator<Item = Body>) {
        for body in bodies {
            self.jobs.fold(&Frame { host: "host".into(), number: 0, now: self.now(), lost: 0, body });
        }
    }

    pub(super) fn job(&self) -> &Job {
        self.jobs.foremost().unwrap()
    }

    pub(super) fn now(&self) -> Moment {
        Moment(self.simulation.started.0 + self.second * 1_000_000_000)
    }

    pub(super) fn findings(&self) -> Vec<Finding> {
        examine(self.job(), self.now())
    }

    /// Runs until something is found, for at most `most` seconds. Returns the findings, and the seconds since
    /// the faults began.
    pub(super) fn until_found(&mut self, most: u64) -> (Vec<Finding>, u64) {
        let from = self.is_stuck.as_ref().map_or(self.from, |(at, _)| *at);
        loop {
            let found = self.run(1).findings();
            if !found.is_empty() || self.second >= from + most {
                return (found, self.second.saturating_sub(from));
            }
        }
    }

    fn write(&mut self, digest: &mut RankDigest, is_stuck: bool) {
        let rank = digest.rank.0;
        self.open_communicators(digest);
        if is_stuck {
            digest.heard = self.now();
            (digest.step_median, digest.step_count) = (None, 0);
            digest.samples.clear();
            (digest.gemm_timed_flops, digest.gemm_timed_for) = self.timed(rank);
            digest.blocked_for = Nanoseconds((self.blocked[rank as usize] * 1e9) as u64);
            if let Some((_, change)) = &self.is_stuck {
                change(rank, digest);
            }
            return;
        }
        let (rate, work) = (self.rate(rank), self.work(rank));
        let (flops, seconds) = &mut self.timed[rank as usize];
        *flops += rate * 0.045 * 1e12;
        *seconds += 0.045;
        digest.gemm_flops = digest.launches.gemms as f64 * 5.5e11 * work;
        (digest.gemm_timed_flops, digest.gemm_timed_for) = self.timed(rank);
        self.blocked[rank as usize] += self.waits(rank);
        digest.blocked_for = Nanoseconds((self.blocked[rank as usize] * 1e9) as u64);
        if let Some(share) = self.exposed {
            self.waited[rank as usize] += self.transfers + share * self.waits_for_the_last(rank);
            digest.exposed_for = Some(Nanoseconds((self.waited[rank as usize] * 1e9) as u64));
        }
        self.calls[rank as usize] += 9 * self.waiting_calls(rank);
        digest.blocked_calls = self.calls[rank as usize];
        let (size, transfer) = (self.simulation.world_size(), self.transfer());
        for sample in &mut digest.samples {
            let sequence = sample.sequence.0;
            // Every second collective is of the stage, if there are stages.
            let of_stage = matches!(self.layout, Layout::Pipeline { .. }) && sequence % 2 == 1;
            if self.layout == Layout::Experts && sequence % 2 == 1 {
                sample.operation = Operation::AlltoAll;
            }
            sample.communicator = u8::from(of_stage);
            let members = (0..size).filter(|&other| !of_stage || self.stage(other) == self.stage(rank));
            let last = members.map(|other| self.arrival_skew(other, sequence, of_stage)).fold(0.0, f64::max);
            let waits = last - self.arrival_skew(rank, sequence, of_stage);
            sample.duration = Nanoseconds((transfer * 1e6 + waits * 1e6) as u64);
        }
    }

    fn timed(&self, rank: u32) -> (f64, Nanoseconds) {
        let (flops, seconds) = self.timed[rank as usize];
        (flops, Nanoseconds((seconds * 1e9) as u64))
    }

    fn stage(&self, rank: u32) -> u32 {
        match self.layout {
            Layout::Data | Layout::Experts => 0,
            Layout::Pipeline { stages } => rank * stages / self.simulation.world_size(),
        }
    }

    fn open_communicators(&self, digest: &mut RankDigest) {
        digest.communicators[0].id = WORLD;
        if let Layout::Pipeline { stages } = self.layout {
            let stage = self.stage(digest.rank.0);
            let of_stage = CommunicatorState {
                id: CommunicatorId(WORLD.0 + (u64::from(stage) + 1) * (1 << 32)),
                size: self.simulation.world_size() / stages,
                ..digest.communicators[0].clone()
            };
            digest.communicators.push(of_stage);
        }
    }

    fn present(&self) -> impl Iterator<Item = Fault> {
        let present = self.second > self.from;
        self.faults.iter().copied().filter(move |_| present)
    }

    fn rate(&self, rank: u32) -> f64 {
        let share = self.present().map(|fault| match fault {
            Fault::Compute { rank: slow, factor } | Fault::Crowded { rank: slow, factor } if slow == rank => {
                1.0 / factor
            }
            Fault::Spread { share } => 1.0 - share * self.chance(rank, self.second),
            Fault::SlowStage { stage, share, .. } if stage == self.stage(rank) => share,
            _ => 1.0,
        });
        640.0 * share.product::<f64>() * (0.99 + 0.02 * self.chance(rank, self.second ^ 0x5555))
    }

    /// Seconds per second that its threads are observed to wait for the GPU.
    fn waits(&self, rank: u32) -> f64 {
        let waits = self.present().map(|fault| match fault {
            Fault::Waits { rank: busy, less } if busy == rank => 0.5 - less,
            Fault::Waits { .. } | Fault::Items { .. } => 0.5,
            _ => 0.0,
        });
        waits.sum()
    }

    /// Time that it waits for the last rank to enter, as a share of the longest possible wait.
    fn waits_for_the_last(&self, rank: u32) -> f64 {
        let late = |rank| self.arrival_skew(rank, self.second, false);
        let last = (0..self.simulation.world_size()).map(late).fold(0.0, f64::max);
        1.0 - late(rank) / last
    }

    /// Calls of a step that wait for the GPU, if observed.
    fn waiting_calls(&self, rank: u32) -> u64 {
        let calls = self.present().map(|fault| match fault {
            Fault::Items { rank: of, calls } if of == rank => 1 + calls,
            Fault::Waits { .. } | Fault::Items { .. } => 1,
            _ => 0,
        });
        calls.sum()
    }

    /// Milliseconds of an undisturbed transfer.
    fn transfer(&self) -> f64 {
        let longer = self.present().map(|fault| match fault {
            Fault::Link { factor } if self.from > 0 || self.second > LINK_FROM => factor,
            Fault::Scatter { share } => 1.0 + share * self.chance(0, self.second / 2 + (1 << 20)),
            _ => 1.0,
        });
        1.2 * longer.product::<f64>()
    }

    /// FLOPs of a GEMM, relative to the usual one.
    fn work(&self, rank: u32) -> f64 {
        let more = self.faults.iter().map(|fault| match *fault {
            Fault::SlowStage { stage, .. } if stage == self.stage(rank) => 0.6,
            Fault::MoreWork { rank: busy, factor, .. } if busy == rank => factor,
            _ => 1.0,
        });
        more.product()
    }

    /// Milliseconds after the earliest possible.
    fn arrival_skew(&self, rank: u32, sequence: u64, of_stage: bool) -> f64 {
        let size = u64::from(self.simulation.world_size());
        let late = self.present().map(|fault| match fault {
            Fault::Compute { rank: slow, factor } if slow == rank => 72.0 * (factor - 1.0) / 4.0,
            Fault::Host { rank: slow, ms } if slow == rank => ms,
            Fault::Pauses { rank: slow, ms, every } if slow == rank && self.second.is_multiple_of(every) => {
                ms
            }
            Fault::Imbalance { ms }
                if sampling::priority((sequence / 4) ^ self.simulation.seed) % size == u64::from(rank) =>
            {
                ms
            }
            Fault::Jitter { ms } => ms * self.chance(rank, sequence),
            Fault::SlowStage { stage, ms, .. } if stage == self.stage(rank) && !of_stage => ms,
            Fault::MoreWork { rank: busy, ms, .. } if busy == rank => ms,
            _ => 0.0,
        });
        late.sum::<f64>() + 0.03 * self.chance(rank, sequence)
    }

    fn chance(&self, rank: u32, number: u64) -> f64 {
        let mixed =
            sampling::priority(self.simulation.seed ^ sampling::priority(u64::from(rank) << 32 ^ number));
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The rank has been inside a call since the hang began.
pub(super) fn hold(digest: &mut RankDigest, call: Call) {
    digest.inside = vec![Inside { thread: 1, call, waited: Nanoseconds(60_000_000_000) }];
}

/// The rank entered and launched `more` additional collectives of a communicator, and waits for the GPU.
pub(super) fn wait(digest: &mut RankDigest, communicator: usize, more: u64) {
    let state = &mut digest.communicators[communicator];
    state.entered += more;
    state.enqueued += more;
    hold(digest, Call::StreamSynchronize);
}

pub(super) fn silent(digest: &mut RankDigest, at: Moment) {
    digest.life = Life::Silent;
    digest.heard = at;
}

pub(super) fn says(digest: &mut RankDigest, operation: Operation, bytes: u64) {
    let state = &mut digest.communicators[0];
    (state.last_operation, state.last_bytes) = (Some(operation), bytes);
}

pub(super) fn only(rank: u32) -> Vec<Rank> {
    vec![Rank(rank)]
}
