//! The quantities by which ranks are compared.

use xpu_model::finding::{Class, Evidence, Finding};

use super::{App, Row};
use crate::widget::scale::Worse;

/// In the order of the heatmaps: related quantities are side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    #[default]
    Gemm,
    Bus,
    Skew,
    StepTime,
    Peak,
    Clock,
    Power,
    Temperature,
    Busy,
    Memory,
    /// It has no partner, so it is shown next to the first: the rate of GEMMs, and how long they are held up.
    Exposed,
}

/// The quantities that the heatmaps show. Quantities without any figure are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// An index among [`Metric::ALL`]; the pair that contains it is shown.
    at: usize,
    /// Whether the maps show the last minutes instead of the present.
    pub over_time: bool,
    /// Whether the user chose the maps, so that they no longer follow findings.
    chosen: bool,
}

/// Number of maps side by side.
const ABREAST: usize = 2;

impl Maps {
    /// Shows the pair that contains this metric.
    pub fn showing(self, metric: Metric) -> Self {
        Self { at: metric as usize, chosen: true, ..self }
    }

    /// The same as [`Self::metrics`], but until the user has chosen, the second metric is that of the worst
    /// finding.
    pub(super) fn following(self, shown: &[Metric], worst: Option<&Finding>) -> [Metric; ABREAST] {
        let [first, second] = self.metrics(shown);
        let late = worst.is_some_and(shows_in_arrival) && shown.contains(&Metric::Skew);
        if late && !self.chosen { [first, Metric::Skew] } else { [first, second] }
    }

    /// Number of pages.
    pub fn pages(shown: &[Metric]) -> usize {
        shown.len().div_ceil(ABREAST)
    }

    /// The index of the shown page.
    pub fn page(self, shown: &[Metric]) -> usize {
        let passed = shown.iter().take_while(|metric| **metric as usize <= self.at).count();
        passed.saturating_sub(1) / ABREAST
    }

    /// The shown metrics. The unpaired metric is shown next to the first.
    pub fn metrics(self, shown: &[Metric]) -> [Metric; ABREAST] {
        let from = self.page(shown) * ABREAST;
        std::array::from_fn(|nth| {
            shown.get((from + nth) % shown.len().max(1)).copied().unwrap_or(Metric::ALL[nth])
        })
    }
}

/// Whether it names ranks that are late although their GEMMs are as fast as the others'.
fn shows_in_arrival(finding: &Finding) -> bool {
    let is_late = matches!(finding.class, Class::Host | Class::Pauses | Class::Step);
    !finding.ranks.is_empty() && (is_late || matches!(finding.evidence, Evidence::MoreWork(_)))
}

impl App {
    /// The metrics that the maps show.
    pub(crate) fn mapped(&self) -> [Metric; ABREAST] {
        self.maps.following(&self.job_view.reported(), self.job_view.findings.first())
    }
}

impl Metric {
    pub const ALL: [Self; 11] = [
        Self::Gemm,
        Self::Bus,
        Self::Skew,
        Self::StepTime,
        Self::Peak,
        Self::Clock,
        Self::Power,
        Self::Temperature,
        Self::Busy,
        Self::Memory,
        Self::Exposed,
    ];

    /// Its name in `:metric`, and in a filter.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gemm => "tflops",
            Self::Bus => "bus",
            Self::Skew => "skew",
            Self::StepTime => "step_ms",
            Self::Peak => "peak",
            Self::Clock => "clock",
            Self::Power => "power",
            Self::Temperature => "temp",
            Self::Busy => "util",
            Self::Memory => "mem",
            Self::Exposed => "exposed",
        }
    }

    /// The metric of this name; earlier versions called arrival skew `late`.
    pub fn called(word: &str) -> Option<Self> {
        let word = if word == "late" { Self::Skew.word() } else { word };
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Gemm => "GEMM TFLOPS",
            Self::Bus => "NCCL bus GB/s",
            Self::Skew => "arrival skew ms",
            Self::StepTime => "step time ms",
            Self::Peak => "% of peak",
            Self::Clock => "SM clock MHz",
            Self::Power => "power W",
            Self::Temperature => "GPU °C",
            Self::Busy => "GPU %",
            Self::Memory => "memory GiB",
            Self::Exposed => "exposed comm %",
        }
    }

    /// Its meaning, shown after the title if there is room.
    pub fn means(self) -> &'static str {
        match self {
            Self::Gemm => " over GEMM time ",
            Self::Bus => " while transferring ",
            Self::Skew => " into a collective ",
            Self::StepTime => " median ",
            Self::Peak => " in GEMMs, at its clock ",
            Self::Clock | Self::Power => " of its GPU ",
            Self::Temperature => " of its core ",
            Self::Busy => " with any kernel running ",
            Self::Memory => " of all processes ",
            Self::Exposed => " GEMMs wait for NCCL ",
        }
    }

    pub fn unit(self) -> &'static str {
        match self {
            Self::Gemm => "TFLOPS",
            Self::Bus => "GB/s",
            Self::Skew | Self::StepTime => "ms",
            Self::Peak | Self::Busy | Self::Exposed => "%",
            Self::Clock => "MHz",
            Self::Power => "W",
            Self::Temperature => "°C",
            Self::Memory => "GiB",
        }
    }

    /// Whether high or low values are bad.
    pub fn worse(self) -> Worse {
        match self {
            Self::Gemm | Self::Bus | Self::Peak | Self::Clock | Self::Power | Self::Busy => Worse::Low,
            Self::Skew | Self::StepTime | Self::Temperature | Self::Memory | Self::Exposed => Worse::High,
        }
    }

    /// Whether the driver reports it, so that it is not timed.
    pub fn is_of_device(self) -> bool {
        matches!(self, Self::Clock | Self::Power | Self::Temperature | Self::Busy | Self::Memory)
    }

    /// Whether it is a main figure of the job, which is shown even while unknown, with the reason.
    pub fn is_always_shown(self) -> bool {
        matches!(self, Self::Gemm | Self::Bus)
    }

    pub fn of(self, row: &Row) -> Option<f64> {
        // Old readings of the driver are not compared.
        let device = row.status.device.as_ref().filter(|device| !device.is_stale());
        match self {
            Self::Gemm => row.status.gemm_tflops.map(|rate| rate.0),
            Self::Bus => row.status.bus_gb_s.map(|rate| rate.0),
            Self::Skew => row.status.lateness_ms_p50,
            Self::StepTime => row.status.step_ms_mean,
            Self::Peak => row.status.gemm_peak_pct,
            Self::Clock => device?.sm_mhz.map(f64::from),
            Self::Power => device?.power_w,
            Self::Temperature => device?.temperature_c.map(f64::from),
            Self::Busy => device?.gpu_pct.map(f64::from),
            Self::Memory => device?.memory_used_bytes.map(|bytes| bytes as f64 / f64::from(1 << 30)),
            Self::Exposed => row.status.exposed_pct,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_quantity_is_shown_by_its_name_and_belongs_to_one_pair() {
        let shown = Metric::ALL;
        for (nth, metric) in shown.into_iter().enumerate() {
            let maps = Maps::default().showing(metric);
            assert!(maps.metrics(&shown).contains(&metric), "{metric:?}");
            assert_eq!((maps.page(&shown), Maps::pages(&shown)), (nth / ABREAST, 6));
        }
    }

    #[test]
    fn what_nobody_reports_is_passed_over_and_an_outlier_has_the_first_beside_it() {
        let shown = [Metric::Gemm, Metric::Bus, Metric::Skew, Metric::StepTime, Metric::Power];
        let maps = Maps::default().showing(Metric::Power);
        assert_eq!(maps.metrics(&shown), [Metric::Power, Metric::Gemm]);
        assert_eq!((maps.page(&shown), Maps::pages(&shown)), (2, 3));
        // The driver stops reporting while its map is shown.
        assert_eq!(maps.metrics(&shown[..4]), [Metric::Skew, Metric::StepTime]);
        assert_eq!(Maps::default().metrics(&[]), [Metric::Gemm, Metric::Bus]);
    }

    #[test]
    fn maps_follow_a_finding_about_a_late_host_until_the_user_chooses() {
        use xpu_model::finding::{
            Confidence, Kind, Severity,
            evidence::slow::{Arrival, LateHost, Named, Rates},
        };
        use xpu_wire::id::Rank;
        let shown = Metric::ALL;
        let who = Named { ranks: vec![Rank(3)], worst: Rank(3), host: "node-1".into() };
        let rates = Rates { tflops: 500.0, usual_tflops: 500.0, ranks: Some(8) };
        let arrival = Arrival { waiting: None, as_of_s: None };
        let finding = |class| Finding {
            kind: Kind::SlowRank,
            class,
            ranks: vec![Rank(3)],
            confidence: Confidence::Certain,
            severity: Severity::Slow,
            since_s: 60.0,
            evidence: Evidence::LateHost(LateHost { who: who.clone(), rates, arrival }),
            advice: String::new(),
            collective: None,
            cost: None,
        };
        let (host, compute) = (finding(Class::Host), finding(Class::Compute));
        let maps = Maps::default();
        assert_eq!(maps.following(&shown, Some(&host)), [Metric::Gemm, Metric::Skew]);
        assert_eq!(maps.following(&shown, Some(&compute)), [Metric::Gemm, Metric::Bus]);
        assert_eq!(maps.following(&shown, None), [Metric::Gemm, Metric::Bus]);
        let chosen = maps.showing(Metric::Bus);
        assert_eq!(chosen.following(&shown, Some(&host)), [Metric::Gemm, Metric::Bus]);
        assert_eq!(
            maps.following(&shown[..2], Some(&host)),
            [Metric::Gemm, Metric::Bus],
            "nobody reports it"
        );
    }
}
