//! The heatmaps: which quantities they show, and whether over time.

use xpu_model::finding::{Class, Evidence, Finding};

use super::{App, Metric, Zoom};

/// Number of maps side by side.
const ABREAST: usize = 2;

/// The quantities that the heatmaps show. Quantities without any figure are skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    /// An index among [`Metric::ALL`]; the pair that contains it is shown.
    at: usize,
    /// Whether the maps show the last minutes instead of the present.
    pub over_time: bool,
    /// The part of the history that the maps over time show.
    pub zoom: Zoom,
    /// Whether the user chose the maps, so that they no longer follow findings.
    chosen: bool,
}

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

/// Whether the finding names ranks that are late although their GEMMs are as fast as the others'.
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
    fn unreported_metrics_are_skipped_and_an_outlier_has_the_first_metric_beside_it() {
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
