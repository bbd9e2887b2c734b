//! From which share on a figure is good enough, and what each limit is derived from.

use super::Kind;

/// The least shares of what a figure is compared with; `None`: not judged by that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub peak: Option<f64>,
    pub neighbours: Option<f64>,
    pub past: Option<f64>,
}

/// The largest GEMM: smaller ones do not reach the peak of any GPU, and are not held against it.
const LARGEST: &str = "8192";

/// The smallest: on a fast GPU it takes hardly longer than its launch, so the host's load shows in it.
const SMALLEST: &str = "2048";

/// Watts: boards whose limit is below this (T4, L4) cannot run their tensor cores at full clock.
const SMALL_BOARD_W: f64 = 100.0;

impl Limits {
    /// Of a figure of this kind, on a board with this power limit.
    pub(super) fn of(kind: Kind, name: &str, power_limit_w: Option<f64>) -> Self {
        let limits = |peak, neighbours, past| Self { peak, neighbours, past };
        match kind {
            // GEMMs of 8192 reach 65 to 73 % of the data sheet on an H200 (docs/measurements.md); half of the sheet is
            // what no healthy board falls below that has the power for it. Boards of one model differ by up to
            // 5 % under one power limit, as voltage and cooling do: a tenth is no variation. A GPU against itself
            // differs by its temperature, a few percent.
            Kind::Gemm if name.ends_with(SMALLEST) => limits(None, Some(0.7), Some(0.7)),
            Kind::Gemm => {
                let small = power_limit_w.is_some_and(|watts| watts < SMALL_BOARD_W);
                let large = name.ends_with(LARGEST);
                limits(large.then_some(if small { 0.25 } else { 0.5 }), Some(0.9), Some(0.9))
            }
            // Copies reach 80 to 90 % of clock times width. Memory's clock is fixed, so boards differ by a percent, and by
            // a few when one is hot and refreshes twice as often.
            Kind::Memory => limits(Some(0.65), Some(0.92), Some(0.92)),
            // Pinned copies reach 80 to 87 % of the link: what is below 60 % runs with fewer lanes or a generation
            // lower than the GPU and its slot can. Which socket's memory is used costs up to 15 %.
            Kind::ToGpu | Kind::FromGpu => limits(Some(0.6), Some(0.8), Some(0.8)),
            Kind::ToGpuTogether => limits(None, None, None),
            // The sheet says what all links of a GPU do together. Boards of four GPUs without a switch have a third of
            // them to each other; a pair that goes through PCIe reaches a tenth.
            Kind::Peer => limits(Some(0.25), Some(0.85), Some(0.85)),
            // Two H200s reach 67 % (docs/measurements.md), two GPUs of a board of four a third; through PCIe a tenth.
            // Between hosts the network's other users show too.
            Kind::AllReduce => limits(Some(0.25), Some(0.8), Some(0.8)),
        }
    }
}
