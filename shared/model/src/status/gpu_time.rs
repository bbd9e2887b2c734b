//! Where the time of a rank's GPU goes, and the share of it that is identified.

use serde::{Deserialize, Serialize};

use crate::job::{RankView, mean};

/// Shares of the last half minute, in percent. The five add up to 100.
///
/// The hook measures GEMMs, CUDA graphs as a whole, and exposed communication. NVML reports the time in which the GPU ran any kernel,
/// of all processes. The difference is the time of kernels that the hook does not time: attention,
/// normalization, optimizers, copies by kernels, and GEMMs of other libraries than cuBLAS.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuTime {
    pub gemms_pct: f64,
    /// CUDA graphs with more than GEMMs in them.
    pub graphs_pct: f64,
    pub communication_pct: f64,
    pub other_kernels_pct: f64,
    pub idle_pct: f64,
    /// GEMMs, graphs and exposed communication, as a share of the time with any kernel.
    pub identified_pct: f64,
}

impl GpuTime {
    /// `None` while a part is unknown.
    pub fn of(view: &RankView, is_alone: bool) -> Option<Self> {
        let readings = view.device_readings().filter(|reading| !reading.is_stale());
        let busy = mean(readings.filter_map(|reading| reading.utilisation).map(f64::from))?;
        let communication = view.exposed().or_else(|| is_alone.then_some(0.0))?;
        let (graphs, gemms) = view.graphs_and_gemms()?;
        Self::from_shares(gemms, graphs, communication, busy / 100.0)
    }

    fn from_shares(gemms: f64, graphs: f64, communication: f64, busy: f64) -> Option<Self> {
        let gemms = gemms.clamp(0.0, 1.0);
        let graphs = graphs.clamp(0.0, 1.0 - gemms);
        let communication = communication.clamp(0.0, 1.0 - gemms - graphs);
        let identified = (gemms + graphs + communication).min(1.0);
        // NVML's share covers other moments than the half minute.
        let busy = busy.clamp(identified, 1.0);
        (busy > 0.0).then(|| Self {
            gemms_pct: 100.0 * gemms,
            graphs_pct: 100.0 * graphs,
            communication_pct: 100.0 * communication,
            other_kernels_pct: 100.0 * (busy - identified),
            idle_pct: 100.0 * (1.0 - busy),
            identified_pct: 100.0 * identified / busy,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_add_up_whatever_the_driver_reads() {
        for (gemms, graphs, communication, busy) in [
            (0.5, 0.0, 0.2, 0.9),
            (0.5, 0.1, 0.2, 0.3),
            (0.7, 0.0, 0.6, 1.0),
            (0.0, 0.0, 0.0, 0.4),
            (1.2, 0.4, 0.0, 0.99),
            (0.3, 0.9, 0.2, 0.5),
        ] {
            let time = GpuTime::from_shares(gemms, graphs, communication, busy).unwrap();
            let known = time.gemms_pct + time.graphs_pct + time.communication_pct;
            let sum = known + time.other_kernels_pct + time.idle_pct;
            assert!((sum - 100.0).abs() < 1e-9, "{time:?}");
            assert!((0.0..=100.0).contains(&time.identified_pct), "{time:?}");
        }
        let time = GpuTime::from_shares(0.4, 0.1, 0.2, 0.875).unwrap();
        assert!((time.other_kernels_pct - 17.5).abs() < 1e-9, "{time:?}");
        assert!((time.identified_pct - 80.0).abs() < 1e-9, "{time:?}");
        assert_eq!(GpuTime::from_shares(0.0, 0.0, 0.0, 0.0), None);
    }
}
