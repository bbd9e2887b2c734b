//! The hook of a simulated rank: it has its own ledger page, and makes a summary each second.

use std::process::{Child, Command, Stdio};

use xpu_wire::{
    datatype::DataType,
    frame::{
        Blocked, BlockingCall, CollectiveSample, CommunicatorState, GemmTotals, HookHealth, Launches,
        RankInfo, StepSource, Steps, Summary, TimedBy, Work,
    },
    gemm::{ComputeType, GemmShape, Routine},
    histogram::Histogram,
    id::{CommunicatorId, DeviceIndex, DeviceUuid, Pid, Rank, Sequence, Step},
    ledger::{Call, LedgerPage, Writers},
    sampling::{Rate, priority},
    unit::Nanoseconds,
};

use crate::{
    chance::Chance,
    fault::{Fault, Stall},
    flow::{Event, What},
    moment,
    scenario::Setting,
};

/// The mean TFLOPS of an undisturbed GPU.
const TFLOPS: f64 = 620.0;

const GEMM: GemmShape = GemmShape {
    m: 8192,
    n: 8192,
    k: 4096,
    batch: 1,
    datatype: DataType::Bfloat16,
    compute: ComputeType::Float32,
    transposed: (false, false),
    routine: Routine::Gemm,
};

#[derive(Debug)]
pub(crate) struct Hook {
    rank: u32,
    page: LedgerPage,
    /// The process of a rank that will die, which inherits the ledger page. The other ranks use this process.
    process: Option<Child>,
    communicators: Vec<Communicator>,
    number: u64,
    steps: u64,
    step_at: f64,
    durations: Histogram,
    /// GEMMs launched, GEMMs timed, and the time of these. Fractions are carried over.
    made: f64,
    timed: f64,
    timed_for: f64,
    timed_before: (u64, f64),
    gemm_durations: Histogram,
    launches: Launches,
    waited: [f64; 2],
    waits: [u64; 2],
    samples: Vec<CollectiveSample>,
    exposed: f64,
    heard: f64,
}

#[derive(Clone, Debug)]
struct Communicator {
    id: CommunicatorId,
    name: String,
    /// The number up to which all collectives are done, though the hook may not know it.
    done: u64,
}

pub(crate) fn uuid(rank: u32) -> DeviceUuid {
    let mut uuid = [0; 16];
    uuid[..4].copy_from_slice(&rank.to_be_bytes());
    DeviceUuid(uuid)
}

impl Hook {
    pub(crate) fn new(setting: &Setting, rank: u32) -> Self {
        let page = LedgerPage::create().expect("a page of memory and two descriptors");
        let dies = matches!(setting.fault, Fault::Stall { rank: who, how: Stall::Dies } if who == rank);
        let process = dies.then(|| inherits(&page));
        let ranks = setting.ranks;
        let kinds = setting.layout.kinds().iter().enumerate();
        let communicators = kinds.map(|(at, kind)| {
            let index = kind.index(rank, ranks);
            let id = CommunicatorId((u64::from(index) + 1) << 40 | (at as u64 + 1) << 32 | 0x5eed);
            let place = (0..rank).filter(|&other| kind.index(other, ranks) == index).count() as u32;
            page.ledger().communicators[at].open(id, place, kind.size(ranks));
            Communicator { id, name: format!("{kind:?}").to_lowercase(), done: 0 }
        });
        let communicators = communicators.collect();
        page.ledger().threads[0].claim(std::process::id());
        Self {
            rank,
            page,
            process,
            communicators,
            number: 0,
            steps: 0,
            step_at: 0.0,
            durations: Histogram::new(),
            made: 0.0,
            timed: 0.0,
            timed_for: 0.0,
            timed_before: (0, 0.0),
            gemm_durations: Histogram::new(),
            launches: Launches::default(),
            waited: [0.0; 2],
            waits: [0; 2],
            samples: Vec::new(),
            exposed: 0.0,
            heard: 0.0,
        }
    }

    /// The number of the next frame.
    pub(crate) fn next(&mut self) -> u64 {
        self.number += 1;
        self.number - 1
    }

    pub(crate) fn info(&self, setting: &Setting) -> RankInfo {
        let pid = self.process.as_ref().map_or_else(std::process::id, Child::id);
        RankInfo {
            job: "scenario".into(),
            rank: Rank(self.rank),
            world_size: setting.ranks,
            local_rank: Some(DeviceIndex(self.rank % 8)),
            pid: Pid(pid),
            started: moment(0.0),
            program: "train.py".to_owned(),
            version: xpu_wire::VERSION.to_owned(),
            ledger: self.page.descriptor().and_then(|fd| u32::try_from(fd).ok()),
        }
    }

    /// Ends the rank's process.
    pub(crate) fn die(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Counts the events until `at`; those that only a summary shows, until `summed`.
    pub(crate) fn take(&mut self, setting: &Setting, events: &mut Vec<Event>, at: f64, summed: f64) {
        let rate = self.collective_rate(setting);
        let mut computed = 0.0;
        events.retain(|&Event { at: when, what }| {
            let of_ledger =
                matches!(what, What::Entered { .. } | What::Step { .. } | What::Done { .. } | What::Passed);
            if when > if of_ledger { at } else { summed } {
                return true;
            }
            self.note(rate, when, what);
            if let What::Computed { seconds } = what {
                computed += seconds;
                self.launches.kernels += 40;
            }
            false
        });
        if computed > 0.0 {
            self.multiply(setting, computed, summed);
        }
    }

    fn note(&mut self, rate: Rate, when: f64, what: What) {
        let ledger = self.page.ledger();
        match what {
            What::Entered { kind, operation, bytes, launched } => {
                let line = &ledger.communicators[kind];
                let id = self.communicators[kind].id;
                line.enter(id, 1, operation, bytes, moment(when), Writers::One);
                if launched {
                    line.enqueue(id, 1, Writers::One);
                    self.launches.collectives += 1;
                }
            }
            What::Done { kind, number, operation, bytes, duration } => {
                let communicator = &mut self.communicators[kind];
                communicator.done = number + 1;
                // Between synchronizations, a timing event shows now and then what is done.
                if number % 3 == 0 {
                    ledger.communicators[kind].complete(communicator.id, number);
                }
                if rate.times(number) {
                    self.samples.push(CollectiveSample {
                        communicator: kind as u8,
                        sequence: Sequence(number),
                        operation,
                        bus_bytes: bytes,
                        duration: nanoseconds(duration),
                    });
                }
            }
            What::Step { seconds } => {
                for (line, communicator) in ledger.communicators.iter().zip(&self.communicators) {
                    if let Some(last) = communicator.done.checked_sub(1) {
                        line.complete(communicator.id, last);
                    }
                }
                self.steps += 1;
                self.step_at = when;
                self.durations.record(nanoseconds(seconds));
                ledger.step(Step(self.steps), moment(when));
            }
            What::Passed => {
                self.launches.point_to_point += 1;
                let widest = self.communicators.len() - 1;
                ledger.communicators[widest].point_to_point(self.communicators[widest].id, 1, Writers::One);
            }
            What::Waited { seconds, copies } => {
                self.waited[usize::from(copies)] += seconds;
                self.waits[usize::from(copies)] += 1;
            }
            What::Exposed { seconds } => self.exposed += seconds,
            What::Computed { .. } => {}
        }
    }

    /// Counts the GEMMs that take this long. A few of them are timed.
    fn multiply(&mut self, setting: &Setting, seconds: f64, at: f64) {
        let slowness = if setting.has_fault_at(at) { setting.fault.slowness(self.rank) } else { 1.0 };
        let chance = Chance(setting.seed).of(3).of(u64::from(self.rank)).of(self.number);
        let made = seconds / slowness * TFLOPS * 1e12 / GEMM.flops();
        let timed = (made / f64::from(1_u32 << setting.timed.0)).max(1.0);
        let mixed = 1.0 + setting.noise.shapes / timed.sqrt() * chance.normal(9);
        let one = GEMM.flops() / (TFLOPS * 1e12) * slowness * mixed;
        self.made += made;
        self.timed += timed;
        self.timed_for += timed * one;
        // Only whole GEMMs are timed.
        let new = self.timed as u64 - self.timed_before.0;
        for _ in 0..new.min(1000) {
            self.gemm_durations.record(nanoseconds(one));
        }
        self.timed_before.0 += new;
    }

    fn collective_rate(&self, setting: &Setting) -> Rate {
        let coarser = Chance(setting.seed).of(2).share(u64::from(self.rank) | 1 << 51) < 0.04;
        Rate(setting.timed.1 + u8::from(coarser))
    }

    /// Sets the call that the main thread is in, and since when.
    pub(crate) fn be_inside(&self, call: Option<(Call, f64)>) {
        let line = &self.page.ledger().threads[0];
        match call {
            Some((call, since)) => line.enter(call, moment(since)),
            None => line.leave(),
        }
    }

    pub(crate) fn summary(&mut self, setting: &Setting, at: f64) -> Summary {
        let gemm_rate = Rate(setting.timed.0);
        let states = self.page.ledger().read().communicators;
        let mut samples = std::mem::take(&mut self.samples);
        samples.sort_by_key(|sample| priority(sample.sequence.0));
        samples.truncate(Summary::SAMPLES);
        samples.sort_by_key(|sample| sample.sequence);
        self.launches.gemms = self.made as u64;
        let whole = self.timed_before.0;
        let gemm = GemmTotals {
            shape: GEMM,
            count: self.made as u64,
            timed: whole,
            timed_for: nanoseconds(self.timed_for * whole as f64 / self.timed.max(1.0)),
            durations: std::mem::take(&mut self.gemm_durations),
        };
        let steps = Steps {
            source: StepSource::Marked,
            completed: Step(self.steps),
            at: moment(self.step_at),
            durations: std::mem::take(&mut self.durations),
            timed_by: TimedBy::Gpu,
            optimizer: String::new(),
            work: Work::default(),
        };
        let blocked =
            [BlockingCall::StreamSynchronize, BlockingCall::Copy].into_iter().zip(0..).map(|(call, kind)| {
                Blocked {
                    call,
                    count: self.waits[kind],
                    waited: nanoseconds(self.waited[kind]),
                    longest: Nanoseconds(0),
                }
            });
        let interval = nanoseconds(at - self.heard);
        self.heard = at;
        Summary {
            interval,
            steps: (self.steps > 0).then_some(steps),
            gemms: (gemm.count > 0).then_some(gemm).into_iter().collect(),
            communicators: states
                .iter()
                .map(|line| {
                    let known = self.communicators.iter().find(|known| known.id == line.id);
                    let name = known.map(|known| known.name.clone()).unwrap_or_default();
                    CommunicatorState { name, ..line.into() }
                })
                .collect(),
            samples,
            launches: self.launches,
            blocked: blocked.filter(|blocked| blocked.count > 0).collect(),
            exposed_for: Some(nanoseconds(self.exposed)),
            device: "NVIDIA H200".to_owned(),
            device_uuid: Some(uuid(self.rank)),
            hook: HookHealth {
                enabled: true,
                budget_ppm: Some(1000),
                spent: nanoseconds(at * 0.0004),
                gemm_rate,
                collective_rate: self.collective_rate(setting),
                ..HookHealth::default()
            },
            ..Summary::default()
        }
    }
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.die();
    }
}

/// Starts a process that also has the page.
fn inherits(page: &LedgerPage) -> Child {
    let fd = page.descriptor().expect("the page is this process's own");
    // SAFETY: changes a flag of a descriptor of this process.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().expect("sleep is everywhere");
    // SAFETY: as above.
    unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
    child
}

fn nanoseconds(seconds: f64) -> Nanoseconds {
    Nanoseconds((seconds * 1e9) as u64)
}
