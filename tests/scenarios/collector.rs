//! The frames that collectors would send of a pretend job: once a second a host, of what each hook summed up last, with the
//! samples that fit.

use xpu_wire::{
    collective::Operation,
    frame::{
        Body, CollectiveSample, CommunicatorState, Frame, HostDigest, Inside, Launches, Life, RankDigest,
        StepSource, TimedBy, Work,
    },
    id::{CommunicatorId, HostName, Pid, Rank, Sequence, Step},
    ledger::Call,
    sampling::{Rate, priority},
    unit::{Moment, Nanoseconds},
};

use crate::{
    chance::Chance,
    device,
    fault::{Stall, Trouble},
    flow::{Event, Flow, What},
    scenario::Setting,
};

const START: u64 = 1_800_000_000_000_000_000;

/// TFLOPS of an undisturbed GPU at the mean, and of one GEMM.
const TFLOPS: f64 = 620.0;
const GEMM: f64 = 5.5e11;

/// After this many seconds a silent process counts as silent, and one that is gone is found to be.
const SILENCE: f64 = 5.0;
const GRACE: f64 = 0.3;

pub(crate) fn moment(at: f64) -> Moment {
    Moment(START + (at * 1e9) as u64)
}

/// What one rank's hook has counted.
#[derive(Clone, Debug, Default)]
struct Account {
    lines: Vec<Line>,
    steps: u64,
    step_at: f64,
    durations: Vec<f64>,
    timed: (f64, f64),
    flops: f64,
    launches: Launches,
    blocked: f64,
    blocked_calls: u64,
    samples: Vec<CollectiveSample>,
    heard: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Line {
    entered: u64,
    enqueued: u64,
    completed: u64,
    done: u64,
    last: Option<(Operation, u64)>,
}

#[derive(Debug)]
pub(crate) struct Collectors<'a> {
    setting: &'a Setting,
    flow: Flow<'a>,
    chance: Chance,
    accounts: Vec<Account>,
    second: u64,
}

impl<'a> Collectors<'a> {
    pub(crate) fn new(setting: &'a Setting) -> Self {
        let line = vec![Line::default(); setting.layout.circles().len()];
        let account = Account { lines: line, ..Account::default() };
        Self {
            setting,
            flow: Flow::new(setting),
            chance: Chance(setting.seed).of(2),
            accounts: vec![account; setting.ranks as usize],
            second: 0,
        }
    }

    /// The frames of the next second, and when the last of them was sent.
    pub(crate) fn second(&mut self) -> (Vec<Frame>, f64) {
        self.second += 1;
        let end = self.second as f64 + 1.0;
        while self.flow.known_until() < end + 0.5 {
            self.flow.step();
        }
        let frames = (0..self.setting.ranks.div_ceil(8)).filter_map(|host| self.frame(host)).collect();
        (frames, end)
    }

    /// When the trouble is there: a stall comes when its step does.
    pub(crate) fn trouble_at(&self) -> f64 {
        self.flow.stalled.unwrap_or(self.setting.from)
    }

    fn frame(&mut self, host: u32) -> Option<Frame> {
        let chance = self.chance.of(u64::from(host));
        let phase = chance.share(0);
        let at = self.second as f64 + phase + 0.004 * chance.normal(self.second);
        let here: Vec<u32> = (host * 8..((host + 1) * 8).min(self.setting.ranks))
            .filter(|&rank| at > self.comes(rank))
            .collect();
        let digests: Vec<_> = here.into_iter().map(|rank| self.digest(rank, at)).collect();
        let lost = chance.share(self.second | 1 << 32) < self.setting.noise.lost;
        (!digests.is_empty() && !lost).then(|| Frame {
            host: HostName(format!("gpu-{host:03}")),
            number: self.second,
            now: moment(at),
            lost: 0,
            body: Body::Digest(HostDigest { job: "scenario".into(), ranks: digests, turned_away: 0 }),
        })
    }

    /// When a rank's process is there.
    fn comes(&self, rank: u32) -> f64 {
        match self.setting.trouble {
            Trouble::LateStart { rank: late, seconds } if late == rank => seconds,
            _ => 0.0,
        }
    }

    fn digest(&mut self, rank: u32, at: f64) -> RankDigest {
        let phase = self.chance.share(u64::from(rank) | 1 << 50);
        // The hook sums up once a second, at its own time; the ledger is read when the digest is made.
        let summed =
            ((at - phase).floor() + phase + 0.002 * self.chance.share(u64::from(rank) << 20 | self.second))
                .min(at);
        let stalled = self.stalls(rank, at);
        let (frozen, life) = match stalled {
            Some((Stall::Stops, since)) => {
                (since, if at - since > SILENCE { Life::Silent } else { Life::Alive })
            }
            Some((Stall::Dies, since)) => (since, if at - since > GRACE { Life::Died } else { Life::Alive }),
            Some((Stall::Ends, since)) => {
                (since + 0.5, if at - since > 0.5 { Life::Ended } else { Life::Alive })
            }
            _ => (f64::INFINITY, Life::Alive),
        };
        self.take(rank as usize, at.min(frozen), summed.min(frozen));
        let inside = if life == Life::Alive { self.inside(rank, at, stalled) } else { None };
        let chance = self.chance.of(u64::from(rank));
        let (gemms, collectives) = self.setting.timed;
        let coarser = |key: u64| u8::from(chance.share(key) < 0.1);
        let (gemm_rate, collective_rate) =
            (Rate(gemms + coarser(5)), self.collective_rate(rank, collectives));
        let account = &mut self.accounts[rank as usize];
        let mut durations = std::mem::take(&mut account.durations);
        durations.sort_by(f64::total_cmp);
        let median = durations.get(durations.len() / 2);
        let mut samples = std::mem::take(&mut account.samples);
        samples.sort_by_key(|sample| priority(sample.sequence.0));
        samples.truncate(RankDigest::SAMPLES);
        samples.sort_by_key(|sample| sample.sequence);
        let account = &self.accounts[rank as usize];
        RankDigest {
            rank: Rank(rank),
            world_size: self.setting.ranks,
            pid: Pid(4000 + rank),
            life,
            heard: moment(account.heard),
            step: (account.steps > 0).then_some(Step(account.steps)),
            step_at: moment(account.step_at),
            step_median: median.map(|&seconds| nanoseconds(seconds)),
            step_count: durations.len() as u32,
            step_p50: median.map(|&seconds| nanoseconds(seconds)),
            step_p99: durations.last().map(|&seconds| nanoseconds(seconds)),
            steps_timed_by: TimedBy::Gpu,
            optimizer: String::new(),
            step_source: Some(StepSource::Marked),
            work: Work::default(),
            gemm_timed_flops: account.timed.0,
            gemm_timed_for: nanoseconds(account.timed.1),
            gemm_flops: account.flops,
            gemm_at_peak: None,
            communicators: self.communicators(rank),
            inside: inside.into_iter().collect(),
            samples,
            launches: account.launches,
            dropped_records: 0,
            untimed: 0,
            overhead_ppm: 400,
            budget_ppm: Some(1000),
            gemm_rate,
            collective_rate,
            memory_held: 60 << 30,
            blocked_for: nanoseconds(account.blocked),
            blocked_calls: account.blocked_calls,
            exposed_for: None,
            device: Some(device::reading(self.setting, self.chance, rank, at)),
            enabled: life != Life::Ended,
            blind: Vec::new(),
        }
    }

    fn collective_rate(&self, rank: u32, usual: u8) -> Rate {
        Rate(usual + u8::from(self.chance.share(u64::from(rank) | 1 << 51) < 0.04))
    }

    /// How this rank stalls, and since when.
    fn stalls(&self, rank: u32, at: f64) -> Option<(Stall, f64)> {
        let Trouble::Stall { rank: who, how } = self.setting.trouble else { return None };
        let since = self.flow.stalled.filter(|since| *since < at)?;
        (who == rank).then_some((how, since))
    }

    /// Counts what happened until then: lines of the ledger are newer than what was summed up.
    fn take(&mut self, rank: usize, at: f64, summed: f64) {
        let rate = self.collective_rate(rank as u32, self.setting.timed.1);
        let (gemms, shapes) = (self.setting.timed.0, self.setting.noise.shapes);
        let slowness =
            if summed >= self.setting.from { self.setting.trouble.slowness(rank as u32) } else { 1.0 };
        let chance = self.chance.of(rank as u64).of(self.second);
        let account = &mut self.accounts[rank];
        let events = &mut self.flow.events[rank];
        let mut computed = 0.0;
        events.retain(|&Event { at: when, what }| {
            let of_ledger = matches!(what, What::Entered { .. } | What::Step { .. } | What::Done { .. });
            if when > if of_ledger { at } else { summed } {
                return true;
            }
            match what {
                What::Entered { circle, operation, bytes, launched } => {
                    let line = &mut account.lines[circle];
                    line.entered += 1;
                    line.enqueued += u64::from(launched);
                    line.last = Some((operation, bytes));
                    account.launches.collectives += u64::from(launched);
                }
                What::Done { circle, number, operation, bytes, duration } => {
                    // Between synchronizations an event now and then says what is done.
                    account.lines[circle].done = number + 1;
                    if number % 3 == 0 {
                        account.lines[circle].completed = number + 1;
                    }
                    if rate.times(number) {
                        account.samples.push(CollectiveSample {
                            communicator: circle as u8,
                            sequence: Sequence(number),
                            operation,
                            bus_bytes: bytes,
                            duration: nanoseconds(duration),
                            peer: None,
                        });
                    }
                }
                What::Computed { seconds } => {
                    computed += seconds;
                    account.launches.kernels += 40;
                }
                What::Passed => account.launches.point_to_point += 1,
                What::Step { seconds } => {
                    for line in &mut account.lines {
                        line.completed = line.done;
                    }
                    account.steps += 1;
                    account.step_at = when;
                    account.durations.push(seconds);
                }
                What::Waited { seconds } => {
                    account.blocked += seconds;
                    account.blocked_calls += 1;
                }
            }
            false
        });
        if computed > 0.0 {
            let flops = computed / slowness * TFLOPS * 1e12;
            account.flops += flops;
            account.launches.gemms = (account.flops / GEMM) as u64;
            let timed = (flops / GEMM / f64::from(1_u32 << gemms)).max(1.0);
            let mixed = 1.0 + shapes / timed.sqrt() * chance.normal(9);
            account.timed.0 += timed * GEMM;
            account.timed.1 += timed * GEMM / (TFLOPS * 1e12) * slowness * mixed;
        }
        account.heard = account.heard.max(summed.max(0.001));
    }

    fn communicators(&self, rank: u32) -> Vec<CommunicatorState> {
        let ranks = self.setting.ranks;
        let circles = self.setting.layout.circles().iter().enumerate();
        let lines = circles.map(|(at, circle)| {
            let line = self.accounts[rank as usize].lines[at];
            let index = circle.index(rank, ranks);
            CommunicatorState {
                id: CommunicatorId((u64::from(index) + 1) << 40 | (at as u64 + 1) << 32 | 0x5eed),
                parent: None,
                name: format!("{circle:?}").to_lowercase(),
                rank: (0..rank).filter(|&other| circle.index(other, ranks) == index).count() as u32,
                size: circle.size(ranks),
                entered: line.entered,
                enqueued: line.enqueued,
                completed: line.completed,
                last_operation: line.last.map(|(operation, _)| operation),
                last_bytes: line.last.map_or(0, |(_, bytes)| bytes),
            }
        });
        lines.collect()
    }

    /// The call its main thread is in: mostly it waits for the step it has launched.
    fn inside(&self, rank: u32, at: f64, stalled: Option<(Stall, f64)>) -> Option<Inside> {
        let within = |call, since: f64| {
            Some(Inside { thread: 4000 + rank, call, waited: nanoseconds((at - since).max(0.0)) })
        };
        if at < 3.0 {
            return None;
        }
        if let Trouble::LateStart { rank: late, seconds } = self.setting.trouble
            && at < seconds + 2.0
        {
            return if rank == late { None } else { within(Call::CommunicatorInit, 3.0) };
        }
        match stalled {
            Some((Stall::OnCpu | Stall::Init | Stall::Finalize | Stall::Ends, _)) => return None,
            Some((Stall::InCall, since)) => return within(Call::GroupEnd, since),
            Some((_, since)) => return within(Call::StreamSynchronize, since),
            None => {}
        }
        if let Trouble::Stall { how, .. } = self.setting.trouble
            && let Some(since) = self.flow.stalled.filter(|since| *since < at)
        {
            match how {
                Stall::Init => return within(Call::CommunicatorInit, since),
                Stall::Finalize => return within(Call::CommunicatorEnd, since),
                _ => {}
            }
        }
        let begun = self.flow.begun(rank as usize, at);
        let pausing = self.setting.trouble.lost(rank, self.setting.step, -1.0, 0.0) > 0.0;
        let launched = begun + 0.1 * self.setting.step;
        if at < launched || self.flow.is_gone(rank as usize) || (pausing && at - begun < 0.5) {
            return None;
        }
        within(Call::StreamSynchronize, launched)
    }
}

fn nanoseconds(seconds: f64) -> Nanoseconds {
    Nanoseconds((seconds * 1e9) as u64)
}
