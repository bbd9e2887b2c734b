//! The smallest share at which a figure passes, and the source of each limit. Measured shares are from H200s
//! (docs/measurements.md, docs/measurements-log.md). The other shares are allowances, and are marked as such.

use super::Kind;

/// The smallest share of each reference; `None` if the figure is not compared with it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limits {
    pub peak: Option<f64>,
    pub neighbours: Option<f64>,
    pub past: Option<f64>,
}

/// The largest GEMM. Smaller ones do not reach a GPU's peak, so they are not compared with it.
const LARGEST: &str = "8192";

/// The smallest GEMM. On a fast GPU it takes hardly longer than its launch, so the host's load affects it.
const SMALLEST: &str = "2048";

/// In watts. Boards with a lower limit (T4, L4) cannot run their tensor cores at full clock.
const SMALL_BOARD_W: f64 = 100.0;

impl Limits {
    /// The limits of a figure of this kind, on a board with this power limit.
    pub(super) fn of(kind: Kind, name: &str, power_limit_w: Option<f64>) -> Self {
        let limits = |peak, neighbours, past| Self { peak, neighbours, past };
        match kind {
            // GEMMs of 8192 reach 65 to 73 % of the data sheet on an H200 (docs/measurements-log.md); half of
            // the data sheet is the allowance for other models, and a quarter for boards whose power limit is
            // too low. Under the same power limit, boards of one model differ because voltage and cooling
            // differ, and one GPU varies with its temperature: a tenth is the allowance for both.
            Kind::Gemm if name.ends_with(SMALLEST) => limits(None, Some(0.7), Some(0.7)),
            Kind::Gemm => {
                let small = power_limit_w.is_some_and(|watts| watts < SMALL_BOARD_W);
                let large = name.ends_with(LARGEST);
                limits(large.then_some(if small { 0.25 } else { 0.5 }), Some(0.9), Some(0.9))
            }
            // An allowance: no copy reaches clock times width. The memory's clock is fixed, so boards of one
            // model differ little; hot memory refreshes more often.
            Kind::Memory => limits(Some(0.65), Some(0.92), Some(0.92)),
            // Two H200s reach 79 and 83 % of the link: half of it would mean one generation lower, or half of
            // the lanes. The rate also depends on the socket whose memory is used: a fifth is the allowance
            // for that.
            Kind::ToGpu | Kind::FromGpu => limits(Some(0.6), Some(0.8), Some(0.8)),
            Kind::ToGpuTogether => limits(None, None, None),
            // The data sheet gives the rate of all links of a GPU together; two H200s reach 62 % of it. On
            // boards of four GPUs without a switch, a third of the links connects each pair. A pair that goes
            // through PCIe reaches a tenth.
            Kind::Peer => limits(Some(0.25), Some(0.85), Some(0.85)),
            // Two H200s reach 67 % (docs/measurements-log.md), two GPUs of a board of four a third, and a pair
            // through PCIe a tenth. Between hosts, other users of the network also affect the rate.
            Kind::AllReduce => limits(Some(0.25), Some(0.8), Some(0.8)),
        }
    }
}
