//! GEMM rates in a job, compared with those on an otherwise idle GPU.

use std::collections::BTreeMap;

use serde::Serialize;
use xpu_model::job::median;
use xpu_wire::{
    frame::CapturedLabel,
    gemm::GemmShape,
    id::{HostName, Rank},
    unit::{Nanoseconds, Tflops},
};

use super::{
    Capture,
    report::{ShapeText, Spread, share},
};

/// A rank stands out below this share of the others' rate.
const STANDS_OUT: f64 = 0.95;

/// All GEMMs of one shape in a job's fully recorded steps.
#[derive(Clone, Debug)]
pub struct ShapeGemms {
    pub shape: GemmShape,
    pub count: u64,
    pub took: Spread,
    pub ranks: BTreeMap<Rank, Spread>,
}

impl ShapeGemms {
    /// The shapes, the costliest first; untimed ones last.
    pub fn of(capture: &Capture) -> Vec<Self> {
        let mut shapes: BTreeMap<GemmShape, (u64, BTreeMap<Rank, Vec<u64>>)> = BTreeMap::new();
        for step in capture.whole_steps() {
            for single in step.operations {
                let CapturedLabel::Gemm(shape) = *single.label else { continue };
                let (count, ranks) = shapes.entry(shape).or_default();
                *count += 1;
                ranks.entry(step.rank).or_default().extend(single.took_on_gpu());
            }
        }
        let each = |(shape, (count, ranks)): (_, (u64, BTreeMap<Rank, Vec<u64>>))| Self {
            shape,
            count,
            took: Spread::of(ranks.values().flatten().copied().collect()),
            ranks: ranks.into_iter().map(|(rank, took)| (rank, Spread::of(took))).collect(),
        };
        let mut all: Vec<_> = shapes.into_iter().map(each).collect();
        all.sort_by_key(|gemms| std::cmp::Reverse(gemms.took.total_ns));
        all
    }

    /// Each rank's rate, by the median of its times.
    fn rates(&self) -> Vec<(Rank, f64)> {
        let rate = |took: &Spread| Tflops::from_work(self.shape.flops(), Nanoseconds(took.p50_ns?));
        self.ranks.iter().filter_map(|(&rank, took)| Some((rank, rate(took)?.0))).collect()
    }
}

/// One GEMM run alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Alone {
    /// The median time.
    #[serde(rename = "alone_ns")]
    pub took_ns: u64,
    pub iterations: u64,
}

/// The same GEMMs in the job and alone.
#[derive(Clone, Debug, Serialize)]
pub struct Standalone {
    /// The shapes that cost most in the job first.
    pub shapes: Vec<ShapeRow>,
    pub ranks: Vec<RankRow>,
    pub total: Total,
}

#[derive(Clone, Debug, Serialize)]
pub struct ShapeRow {
    #[serde(skip)]
    pub shape: GemmShape,
    #[serde(flatten)]
    pub text: ShapeText,
    pub count: u64,
    /// Its times in the job, over all ranks.
    #[serde(flatten)]
    pub took: Spread,
    /// The median over the ranks.
    pub job_tflops: Option<f64>,
    pub best: Option<RankRate>,
    pub worst: Option<RankRate>,
    pub stands_out: Option<StandsOut>,
    #[serde(flatten)]
    pub alone: Option<Alone>,
    pub alone_tflops: Option<Tflops>,
    /// `job_tflops` over `alone_tflops`.
    pub ratio: Option<f64>,
    pub not_replayed: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct RankRate {
    pub rank: Rank,
    pub tflops: f64,
}

/// A rank slower than the others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct StandsOut {
    pub rank: Rank,
    /// 0.7: its rate is 70 % of the others' median.
    pub of_others: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct RankRow {
    pub rank: Rank,
    pub host: HostName,
    /// Job time of the GEMMs that were replayed.
    pub replayed_ns: u64,
    /// Their time alone, over their time in the job.
    pub ratio: Option<f64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Total {
    /// Job time of timed GEMMs, over all ranks.
    pub total_ns: u64,
    pub replayed_ns: u64,
    /// Time alone of the replayed ones.
    pub alone_ns: u64,
    /// The replayed share of `total_ns`.
    pub covered: Option<f64>,
    /// Their time alone as a share of `replayed_ns`: 0.93 if the job's GEMMs run at 93 % of this GPU's rate.
    pub ratio: Option<f64>,
    pub stands_out: Option<StandsOut>,
}

impl Standalone {
    /// `alone` has the result of each shape, or why it was not replayed.
    pub fn of(capture: &Capture, gemms: &[ShapeGemms], alone: &[Result<Alone, String>]) -> Self {
        let pairs = || gemms.iter().zip(alone);
        let mut total = Total::default();
        let mut by_rank: BTreeMap<Rank, (u64, u64)> = BTreeMap::new();
        for (gemms, alone) in pairs() {
            total.total_ns = total.total_ns.saturating_add(gemms.took.total_ns);
            for (&rank, took) in &gemms.ranks {
                let (replayed, by_itself) = by_rank.entry(rank).or_default();
                let Ok(alone) = alone else { continue };
                *replayed = replayed.saturating_add(took.total_ns);
                *by_itself = by_itself.saturating_add(alone.took_ns.saturating_mul(took.timed));
            }
        }
        let host = |rank: &Rank| capture.ranks.get(rank).map(|of| of.host.clone()).unwrap_or_default();
        let row = |(rank, &(replayed_ns, alone_ns)): (&Rank, &(u64, u64))| {
            let ratio = share(alone_ns, replayed_ns);
            RankRow { rank: *rank, host: host(rank), replayed_ns, ratio }
        };
        let ranks: Vec<_> = by_rank.iter().map(row).collect();
        let sum = |each: fn(&(u64, u64)) -> u64| by_rank.values().map(each).fold(0, u64::saturating_add);
        (total.replayed_ns, total.alone_ns) = (sum(|of| of.0), sum(|of| of.1));
        total.covered = share(total.replayed_ns, total.total_ns);
        total.ratio = share(total.alone_ns, total.replayed_ns);
        let ratios: Vec<_> = ranks.iter().filter_map(|row| Some((row.rank, row.ratio?))).collect();
        total.stands_out = stands_out(&ratios);
        Self { shapes: pairs().map(|(gemms, alone)| shape_row(gemms, alone)).collect(), ranks, total }
    }
}

fn shape_row(gemms: &ShapeGemms, alone: &Result<Alone, String>) -> ShapeRow {
    let shape = gemms.shape;
    let rates = gemms.rates();
    let ends = |of: Option<&(Rank, f64)>| of.map(|&(rank, tflops)| RankRate { rank, tflops });
    let job_tflops = median(rates.iter().map(|&(_, rate)| rate).collect());
    let alone_ns = alone.as_ref().ok().map(|alone| Nanoseconds(alone.took_ns));
    let alone_tflops = alone_ns.and_then(|took| Tflops::from_work(shape.flops(), took));
    ShapeRow {
        shape,
        text: ShapeText::from(&shape),
        count: gemms.count,
        took: gemms.took,
        job_tflops,
        best: ends(rates.iter().max_by(|a, b| a.1.total_cmp(&b.1))),
        worst: ends(rates.iter().min_by(|a, b| a.1.total_cmp(&b.1))),
        stands_out: stands_out(&rates),
        alone: alone.as_ref().ok().copied(),
        alone_tflops,
        ratio: job_tflops.zip(alone_tflops).map(|(job, alone)| job / alone.0),
        not_replayed: alone.as_ref().err().cloned(),
    }
}

/// The slowest rank, if it stands out.
fn stands_out(rates: &[(Rank, f64)]) -> Option<StandsOut> {
    let &(rank, slowest) = rates.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let others = rates.iter().filter(|&&(other, _)| other != rank).map(|&(_, rate)| rate);
    let of_others = slowest / median(others.collect())?;
    (of_others < STANDS_OUT).then_some(StandsOut { rank, of_others })
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        frame::example::capture::{MS, part, sheet},
        frame::{Body, CapturePart, CapturedSpan, Frame},
        unit::Moment,
    };

    use super::*;

    fn capture(parts: Vec<CapturePart>) -> Capture {
        let mut capture = Capture::default();
        let ranks: Vec<_> = parts.iter().map(|part| part.rank.0).collect();
        let bodies = parts.into_iter().map(Body::CapturePart);
        for body in [Body::CaptureSheet(sheet(&ranks))].into_iter().chain(bodies) {
            capture.take(&Frame { host: "a".into(), number: 0, now: Moment(0), lost: 0, body });
        }
        capture
    }

    /// A rank whose GEMMs take `ms` instead of 10 ms.
    fn taking(rank: u32, ms: u64) -> CapturePart {
        let mut part = part(rank, 0);
        for operation in part.operations.iter_mut().filter(|operation| operation.label == 0) {
            if let CapturedSpan::Gpu { took, .. } = &mut operation.span {
                took.0 = ms * MS;
            }
        }
        part
    }

    #[test]
    fn the_job_is_as_fast_as_its_gemms_are_alone_or_slower() {
        let capture = capture(vec![taking(0, 10), taking(1, 20), taking(2, 10)]);
        let gemms = ShapeGemms::of(&capture);
        let alone = Alone { took_ns: 8 * MS, iterations: 9 };
        let of = Standalone::of(&capture, &gemms, &[Ok(alone)]);
        let [row] = &of.shapes[..] else { panic!("one shape: {of:?}") };
        assert_eq!((row.count, row.took.total_ns, row.alone), (6, 80 * MS, Some(alone)));
        // 2*8*4*2 operations in 10 ms, and in 20 ms.
        let tflops = |ms: f64| 128.0 / (ms / 1e3) / 1e12;
        assert_eq!(row.job_tflops, Some(tflops(10.0)));
        assert_eq!(row.worst, Some(RankRate { rank: Rank(1), tflops: tflops(20.0) }));
        assert_eq!(row.best.expect("timed").tflops, tflops(10.0));
        assert_eq!(row.stands_out, Some(StandsOut { rank: Rank(1), of_others: 0.5 }));
        assert!((row.ratio.expect("replayed") - 0.8).abs() < 1e-9, "{row:?}");
        // Alone they take 6 of 8 ms; in the job they took 80.
        assert_eq!((of.total.alone_ns, of.total.ratio, of.total.covered), (48 * MS, Some(0.6), Some(1.0)));
        assert_eq!(of.total.stands_out, row.stands_out);
        let ratios: Vec<_> = of.ranks.iter().map(|row| row.ratio).collect();
        assert_eq!(ratios, [Some(0.8), Some(0.4), Some(0.8)]);
    }

    #[test]
    fn a_shape_that_was_not_replayed_is_in_no_ratio() {
        let capture = capture(vec![taking(0, 10)]);
        let gemms = ShapeGemms::of(&capture);
        let of = Standalone::of(&capture, &gemms, &[Err("too large".to_owned())]);
        assert_eq!(of.shapes[0].not_replayed.as_deref(), Some("too large"));
        assert_eq!((of.shapes[0].ratio, of.total.ratio, of.total.covered), (None, None, Some(0.0)));
        assert_eq!((of.ranks[0].rank, of.ranks[0].ratio), (Rank(0), None));
    }

    #[test]
    fn single_and_equal_ranks_are_no_outliers() {
        assert_eq!(stands_out(&[(Rank(0), 1.0)]), None);
        assert_eq!(stands_out(&[(Rank(0), 100.0), (Rank(1), 96.0)]), None);
        assert_eq!(stands_out(&[]), None);
    }
}
