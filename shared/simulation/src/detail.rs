//! The details of a simulated rank: its GEMMs by shape, its collectives by size, its steps.

use super::{BUCKET, Simulation};
use xpu_wire::{
    collective::Operation,
    datatype::DataType,
    frame::{
        Body, CollectiveTotals, Frame, GemmTotals, RankDetail, StepSource, Steps, Summary, TimedBy, Work,
    },
    gemm::{ComputeType, GemmShape, Routine},
    histogram::Histogram,
    id::{CommunicatorId, Rank, Step},
    unit::Nanoseconds,
};

/// Tokens of a rank's batch, and layers of its stage: a step launches every shape of a layer once per layer.
const TOKENS: u64 = 1_024;
const LAYERS: u64 = 8;

/// Weights of a layer, and the relative speed of GEMMs with them.
const WEIGHTS: [(u64, u64, f64); 4] =
    [(10_240, 8_192, 0.97), (8_192, 8_192, 0.93), (57_344, 8_192, 1.03), (8_192, 28_672, 1.0)];

/// The sampling rate of GEMMs.
const ONE_IN: u64 = 16;

impl Simulation {
    /// The details that the collectors publish in second number `seconds` for the watched ranks.
    pub fn details(&self, seconds: u64, ranks: impl IntoIterator<Item = Rank>) -> Vec<Frame> {
        let known = ranks.into_iter().filter(|rank| rank.0 < self.world_size());
        known
            .map(|rank| {
                let summary = self.summary(rank, seconds);
                let detail = RankDetail { job: self.job.clone(), rank, summary };
                self.frame(rank.0 / self.ranks_per_host, seconds, Body::Detail(detail))
            })
            .collect()
    }

    fn summary(&self, rank: Rank, seconds: u64) -> Summary {
        let steps_per_second = 1_000_000_000 / self.step_time().0;
        let steps = seconds * steps_per_second;
        let mut durations = Histogram::new();
        for step in 0..steps_per_second {
            let jitter = 0.99
                + 0.02 * self.noise(rank, steps + step)
                + 0.3 * f64::from(step == 3) * self.noise(rank, seconds);
            durations.record(Nanoseconds((self.step_time().0 as f64 * jitter) as u64));
        }
        Summary {
            interval: Nanoseconds(1_000_000_000),
            steps: Some(Steps {
                source: StepSource::Marked,
                timed_by: TimedBy::Gpu,
                optimizer: String::new(),
                completed: Step(steps),
                at: self.at(seconds),
                durations,
                work: Work::default(),
            }),
            gemms: shapes().map(|(shape, speed)| self.gemm(rank, shape, speed, seconds)).collect(),
            collectives: vec![self.collective(rank, steps, steps_per_second)],
            device: "NVIDIA H200".to_owned(),
            ..Summary::default()
        }
    }

    fn gemm(&self, rank: Rank, shape: GemmShape, speed: f64, seconds: u64) -> GemmTotals {
        let each = shape.flops() / (self.tflops(rank) * speed * 1e3);
        let launched = LAYERS * 1_000_000_000 / self.step_time().0;
        let mut durations = Histogram::new();
        for number in 0..launched.div_ceil(ONE_IN) {
            // Occasionally one takes much longer, which gives the distribution its tail.
            let noise = self.noise(rank, seconds << 8 ^ number ^ shape.m);
            let tail = if noise > 0.97 { 1.3 } else { 1.0 };
            durations.record(Nanoseconds((each * tail * (0.99 + 0.02 * noise)) as u64));
        }
        let count = seconds * launched;
        let timed = count / ONE_IN;
        let timed_for = Nanoseconds((timed as f64 * each) as u64);
        GemmTotals { shape, count, timed, timed_for, durations }
    }

    fn collective(&self, rank: Rank, steps: u64, steps_per_second: u64) -> CollectiveTotals {
        let mut durations = Histogram::new();
        for number in 0..steps_per_second {
            durations.record(self.sample(rank, steps * 4 + number, self.slowdown(rank)).duration);
        }
        let (count, each) = (steps * 4, durations.median().unwrap_or_default().0);
        CollectiveTotals {
            communicator: CommunicatorId(0x9ca7_92c9_0000_0001 ^ self.seed),
            operation: Operation::AllReduce,
            datatype: DataType::Bfloat16,
            bytes: BUCKET,
            count,
            timed: count / 4,
            timed_for: Nanoseconds(count / 4 * each),
            durations,
        }
    }
}

/// The forward pass, and the backward pass for activations and for weights.
fn shapes() -> impl Iterator<Item = (GemmShape, f64)> {
    let shape = |(m, n, k), transposed| {
        let (datatype, compute) = (DataType::Bfloat16, ComputeType::Float32);
        GemmShape { m, n, k, batch: 1, datatype, compute, transposed, routine: Routine::Gemm }
    };
    let layers = WEIGHTS.into_iter().flat_map(move |(out, into, speed)| {
        [
            (shape((out, TOKENS, into), (true, false)), speed),
            (shape((into, TOKENS, out), (false, false)), speed * 0.98),
            (shape((into, out, TOKENS), (false, true)), speed * 0.91),
        ]
    });
    // The loss: small, and in full precision.
    let loss = GemmShape { datatype: DataType::Float32, ..shape((256, TOKENS, 1_024), (true, false)) };
    layers.chain([(loss, 0.03)])
}
