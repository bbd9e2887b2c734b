//! The least share at which a figure is good enough, and the source of each limit. Shares that were measured
//! are in docs/measurements.md and docs/measurements-log.md, on H200s; the others are allowances, and say so.

use super::Kind;

/// The least shares of each reference; `None`: not judged by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub peak: Option<f64>,
    pub neighbours: Option<f64>,
    pub past: Option<f64>,
}

/// The largest GEMM: smaller ones reach no GPU's peak, and are not compared with it.
const LARGEST: &str = "8192";

/// The smallest: on a fast GPU it takes hardly longer than its launch, so the host's load shows in it.
const SMALLEST: &str = "2048";

/// Watts: boards whose limit is below this (T4, L4) cannot run their tensor cores at full clock.
const SMALL_BOARD_W: f64 = 100.0;

impl Limits {
    /// The limits of a figure of this kind, on a board with this power limit.
    pub(super) fn of(kind: Kind, name: &str, power_limit_w: Option<f64>) -> Self {
        let limits = |peak, neighbours, past| Self { peak, neighbours, past };
        match kind {
            // GEMMs of 8192 reach 65 to 73 % of the data sheet on an H200 (docs/measurements.md); half of the sheet is
            // the allowance for other models, and a quarter for boards without the power for it. Boards of one
            // model differ under one power limit, as voltage and cooling do, and a GPU differs from itself by its
            // temperature: a tenth is the allowance for both.
            Kind::Gemm if name.ends_with(SMALLEST) => limits(None, Some(0.7), Some(0.7)),
            Kind::Gemm => {
                let small = power_limit_w.is_some_and(|watts| watts < SMALL_BOARD_W);
                let large = name.ends_with(LARGEST);
                limits(large.then_some(if small { 0.25 } else { 0.5 }), Some(0.9), Some(0.9))
            }
            // An allowance: no copy reaches clock times width. Memory's clock is fixed, so boards of one model differ
            // little; a hot one refreshes more often.
            Kind::Memory => limits(Some(0.65), Some(0.92), Some(0.92)),
            // Two H200s reach 79 and 83 % of the link: half of it would be one generation lower, or half of the lanes.
            // Which socket's memory is used counts too: a fifth is the allowance for that.
            Kind::ToGpu | Kind::FromGpu => limits(Some(0.6), Some(0.8), Some(0.8)),
            Kind::ToGpuTogether => limits(None, None, None),
            // The sheet says what all links of a GPU do together; two H200s reach 62 %. Boards of four GPUs without a
            // switch have a third of them to each other; a pair that goes through PCIe reaches a tenth.
            Kind::Peer => limits(Some(0.25), Some(0.85), Some(0.85)),
            // Two H200s reach 67 % (docs/measurements.md), two GPUs of a board of four a third; through PCIe a tenth.
            // Between hosts the network's other users show too.
            Kind::AllReduce => limits(Some(0.25), Some(0.8), Some(0.8)),
        }
    }
}
