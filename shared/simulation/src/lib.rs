//! A simulated job, computed from a seed: the frames that the collectors of a real one would send, for tests
//! and benchmarks. No process and no collector runs.

mod detail;
mod device;
mod load;

use std::ops::Range;

use xpu_wire::{
    collective::Operation,
    endpoint::BasePort,
    frame::{
        Advance, Body, CollectiveSample, CommunicatorState, Frame, HostDigest, HostSnapshot, JobSnapshot,
        Launches, Life, RankDigest, RankInfo, RankSnapshot, StepSource, TimedBy, Work,
    },
    id::{CommunicatorId, DeviceIndex, HostName, JobName, Pid, Rank, Sequence, Step},
    sampling,
    unit::{Moment, Nanoseconds},
};

/// A job of equal ranks, some of them slower.
#[derive(Clone, Debug)]
pub struct Simulation {
    pub job: JobName,
    pub seed: u64,
    pub hosts: u32,
    pub ranks_per_host: u32,
    /// (rank, factor on its GEMM times).
    pub slow: Vec<(Rank, f64)>,
    /// In these seconds of the job, the other ranks wait [`LATE`] for the rank in each collective.
    pub late: Vec<(Rank, Range<u64>)>,
    pub started: Moment,
}

/// A healthy rank's rate.
const GEMM_TFLOPS: f64 = 640.0;
const BUS_GB_S: f64 = 350.0;
/// An H200's, in bf16.
const PEAK_TFLOPS: f64 = 989.5;
const STEP: Nanoseconds = Nanoseconds(102_400_000);
const BUCKET: u64 = 64 << 20;
/// How much later than the others a late rank enters a collective.
const LATE: Nanoseconds = Nanoseconds(3_000_000);

impl Simulation {
    pub fn new(seed: u64, hosts: u32, ranks_per_host: u32) -> Self {
        let started = Moment(1_800_000_000_000_000_000);
        let (job, slow, late) = ("llama-70b".into(), Vec::new(), Vec::new());
        Self { job, seed, hosts, ranks_per_host, slow, late, started }
    }

    pub fn world_size(&self) -> u32 {
        self.hosts * self.ranks_per_host
    }

    pub fn host(&self, index: u32) -> HostName {
        HostName(format!("gpu-{:03}", index + 1))
    }

    /// Every collector's answer to a new viewer, `seconds` after the start.
    pub fn snapshots(&self, seconds: u64) -> Vec<Frame> {
        (0..self.hosts)
            .map(|host| {
                let ranks = self.ranks_of(host).map(|rank| RankSnapshot {
                    info: self.info(rank),
                    earlier: Vec::new(),
                    advance: Advance::default(),
                    digest: self.digest(rank, seconds),
                });
                let jobs =
                    vec![JobSnapshot { job: self.job.clone(), ranks: ranks.collect(), turned_away: 0 }];
                let version = xpu_wire::VERSION.to_owned();
                let snapshot = HostSnapshot { version, started: self.started, base: BasePort::DEFAULT, jobs };
                self.frame(host, seconds, Body::Snapshot(snapshot))
            })
            .collect()
    }

    /// The digests of every collector in second number `seconds`.
    pub fn digests(&self, seconds: u64) -> Vec<Frame> {
        (0..self.hosts).map(|host| self.digest_of(host, seconds)).collect()
    }

    /// The digest of one collector in second number `seconds`.
    pub fn digest_of(&self, host: u32, seconds: u64) -> Frame {
        let ranks = self.ranks_of(host).map(|rank| self.digest(rank, seconds)).collect();
        let digest = HostDigest { job: self.job.clone(), ranks, turned_away: 0 };
        self.frame(host, seconds, Body::Digest(digest))
    }

    fn ranks_of(&self, host: u32) -> impl Iterator<Item = Rank> {
        (host * self.ranks_per_host..(host + 1) * self.ranks_per_host).map(Rank)
    }

    fn frame(&self, host: u32, seconds: u64, body: Body) -> Frame {
        Frame { host: self.host(host), number: seconds, now: self.at(seconds), lost: 0, body }
    }

    /// The time `seconds` after the start.
    pub fn at(&self, seconds: u64) -> Moment {
        Moment(self.started.0 + seconds * 1_000_000_000)
    }

    fn pid(rank: Rank) -> Pid {
        Pid(4000 + rank.0)
    }

    fn info(&self, rank: Rank) -> RankInfo {
        RankInfo {
            job: self.job.clone(),
            rank,
            world_size: self.world_size(),
            local_rank: Some(DeviceIndex(rank.0 % self.ranks_per_host)),
            pid: Self::pid(rank),
            started: self.started,
            program: "python train.py".to_owned(),
            version: xpu_wire::VERSION.to_owned(),
            ledger: None,
        }
    }

    fn digest(&self, rank: Rank, seconds: u64) -> RankDigest {
        let slowdown = self.slowdown(rank);
        let steps_per_second = 1_000_000_000 / self.step_time().0;
        let steps = seconds * steps_per_second;
        let step_took =
            Nanoseconds((self.step_time().0 as f64 * (0.999 + 0.002 * self.noise(rank, 1))) as u64);
        let tflops = self.tflops(rank);
        // A sixteenth of the step's 71 % of compute is timed.
        let timed = steps as f64 * STEP.seconds() * 0.71 / 16.0;
        let collectives = steps * 4;
        let waited = if self.is_waiting(rank, seconds) { LATE } else { Nanoseconds(0) };
        let samples = (collectives.saturating_sub(4 * steps_per_second)..collectives)
            .filter(|&sequence| sampling::Rate(2).times(sequence))
            .take(RankDigest::SAMPLES)
            .map(|sequence| {
                let sample = self.sample(rank, sequence, slowdown);
                CollectiveSample { duration: Nanoseconds(sample.duration.0 + waited.0), ..sample }
            })
            .collect();
        RankDigest {
            rank,
            world_size: self.world_size(),
            pid: Self::pid(rank),
            life: Life::Alive,
            heard: self.at(seconds),
            step: Some(Step(steps)),
            step_at: self.at(seconds),
            step_median: Some(step_took),
            step_count: steps_per_second as u32,
            step_p50: Some(step_took),
            step_p99: Some(Nanoseconds(step_took.0 + step_took.0 / 50)),
            steps_timed_by: TimedBy::Gpu,
            step_source: Some(StepSource::Marked),
            optimizer: String::new(),
            work: Work::default(),
            gemm_timed_flops: tflops * 1e12 * timed * slowdown,
            gemm_timed_for: Nanoseconds((timed * slowdown * 1e9) as u64),
            gemm_flops: tflops * 1e12 * timed * slowdown * 16.0,
            gemm_at_peak: Some(Nanoseconds((tflops * timed * slowdown * 16.0 / PEAK_TFLOPS * 1e9) as u64)),
            graphs_for: Nanoseconds(0),
            graphs_flops: 0.0,
            communicators: vec![CommunicatorState {
                id: CommunicatorId(0x9ca7_92c9_0000_0001 ^ self.seed),
                parent: None,
                name: String::new(),
                rank: rank.0,
                size: self.world_size(),
                entered: collectives,
                enqueued: collectives,
                completed: collectives,
                last_operation: Some(Operation::AllReduce),
                last_bytes: BUCKET,
            }],
            inside: Vec::new(),
            samples,
            launches: Launches {
                kernels: steps * 300,
                gemms: steps * 96,
                collectives,
                ..Launches::default()
            },
            dropped_records: 0,
            untimed: 0,
            overhead_ppm: 300,
            budget_ppm: Some(1000),
            gemm_rate: sampling::Rate(4),
            collective_rate: sampling::Rate(2),
            memory_held: 0,
            memory_nccl: None,
            memory_growth: None,
            blocked_for: Nanoseconds::default(),
            blocked_calls: 0,
            exposed_for: Some(self.exposed_for(rank, seconds, steps)),
            device: Some(self.device(rank, seconds)),
            enabled: true,
            blind: Vec::new(),
        }
    }

    /// Whether the rank waits for a late one.
    fn is_waiting(&self, rank: Rank, second: u64) -> bool {
        let now = self.late.iter().filter(|(_, seconds)| seconds.contains(&second));
        now.map(|&(late, _)| late != rank).next().unwrap_or(false)
    }

    /// How long its GEMMs have waited for communication. If ranks are late at some time: for a fifth of the time
    /// in which it was not late itself.
    fn exposed_for(&self, rank: Rank, second: u64, steps: u64) -> Nanoseconds {
        if self.late.is_empty() {
            return Nanoseconds(steps * self.exposed(rank).0);
        }
        let own = self.late.iter().filter(|(late, _)| *late == rank);
        let was_late: u64 =
            own.map(|(_, seconds)| second.clamp(seconds.start, seconds.end) - seconds.start).sum();
        Nanoseconds((second - was_late) * 1_000_000_000 / 5)
    }

    fn slowdown(&self, rank: Rank) -> f64 {
        self.slow.iter().find(|(slow, _)| *slow == rank).map_or(1.0, |&(_, factor)| factor)
    }

    /// The rate of its GEMMs.
    fn tflops(&self, rank: Rank) -> f64 {
        GEMM_TFLOPS * (0.995 + 0.01 * self.noise(rank, 0)) / self.slowdown(rank)
    }

    /// All ranks wait for the slowest. A second contains a whole number of steps.
    fn step_time(&self) -> Nanoseconds {
        let worst = self.slow.iter().map(|&(_, factor)| factor).fold(1.0, f64::max);
        let least = STEP.seconds() * (1.0 + 0.71 * (worst - 1.0));
        Nanoseconds((1e9 / (1.0 / least).floor()) as u64)
    }

    /// Exposed communication of a step: GEMMs hide a tenth of its four collectives.
    fn exposed(&self, rank: Rank) -> Nanoseconds {
        Nanoseconds(self.sample(rank, 0, self.slowdown(rank)).duration.0 * 4 * 9 / 10)
    }

    fn sample(&self, rank: Rank, sequence: u64, slowdown: f64) -> CollectiveSample {
        let bus_bytes = Operation::AllReduce.bus_bytes(BUCKET / 2, 2, self.world_size());
        let transfer = bus_bytes as f64 / BUS_GB_S * (0.98 + 0.04 * self.noise(Rank(0), sequence));
        let longer = (self.step_time().0 - STEP.0) as f64;
        let waits = if slowdown > 1.0 || self.slow.is_empty() { 0.0 } else { longer / 4.0 };
        let jitter = 30_000.0 * self.noise(rank, sequence);
        CollectiveSample {
            communicator: 0,
            sequence: Sequence(sequence),
            operation: Operation::AllReduce,
            bus_bytes,
            duration: Nanoseconds((transfer + waits + jitter) as u64),
        }
    }

    /// 0 to 1, the same for the same seed, rank and number.
    fn noise(&self, rank: Rank, number: u64) -> f64 {
        let mixed = sampling::priority(self.seed ^ sampling::priority(u64::from(rank.0) << 32 ^ number));
        (mixed >> 11) as f64 / (1_u64 << 53) as f64
    }
}
