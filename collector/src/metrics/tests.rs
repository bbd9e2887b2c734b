//! The metrics of a simulated cluster.

use std::collections::BTreeSet;

use xpu_simulation::Simulation;
use xpu_wire::id::Rank;

use super::*;

/// A job that has been followed for a while.
fn known(simulation: &Simulation) -> Known {
    let mut known = Known::new(Moment(0), Pages { compat: true, per_shape: true, ..Pages::default() });
    let take = |known: &mut Known, frames: Vec<xpu_wire::frame::Frame>| {
        for frame in frames {
            known.take(b"", &frame, frame.now);
        }
    };
    take(&mut known, simulation.snapshots(60));
    for second in 61..100 {
        take(&mut known, simulation.digests(second));
        take(&mut known, simulation.details(second, (0..8).map(Rank)));
    }
    known
}

fn page() -> String {
    let simulation = Simulation::new(2, 2, 4);
    let known = known(&simulation);
    let now = simulation.digests(99)[0].now;
    text(&Exposition::of(&known, &Own::default(), &WhatIfs::default(), &Pod::of_environment(), now))
}

#[test]
fn the_page_has_a_line_for_every_rank_and_ends_as_openmetrics_does() {
    let page = page();
    for rank in 0..8 {
        for name in [
            "xpu_top_steps_total",
            "xpu_top_bus_bandwidth_bytes_per_second",
            "xpu_top_gemm_duration_seconds_count",
        ] {
            let line = |line: &str| line.starts_with(name) && line.contains(&format!("rank=\"{rank}\""));
            assert!(page.lines().any(line), "{name} of rank {rank} in\n{page}");
        }
    }
    assert!(page.ends_with("# EOF\n"));
    assert!(page.contains("le=\"+Inf\"") && !page.contains("{}"), "{page}");
    assert!(page.contains("# UNIT xpu_top_step_median_seconds seconds\n"));
}

/// The ranks of a host that sends no frames have no gauges any more. Other ranks and the job keep their
/// gauges.
#[test]
fn gauges_have_only_ranks_with_current_figures() {
    let simulation = Simulation::new(2, 2, 4);
    let mut known = known(&simulation);
    for second in 100..112 {
        let frame = simulation.digests(second).remove(0);
        known.take(b"", &frame, frame.now);
    }
    let now = simulation.digests(111)[0].now;
    let page =
        text(&Exposition::of(&known, &Own::default(), &WhatIfs::default(), &Pod::of_environment(), now));
    let gauges = [
        "xpu_top_step_mean_seconds",
        "xpu_top_gemm_rate",
        "xpu_top_bus_bandwidth_bytes_per_second",
        "xpu_top_lateness_seconds",
        "xpu_top_mfu_ratio",
        "xpu_top_collective_bus_bandwidth_bytes_per_second",
        "xpu_top_gpu_power_watts",
    ];
    for gauge in gauges {
        let reported = |rank: u32| {
            let is = |line: &&str| line.starts_with(gauge) && line.contains(&format!("rank=\"{rank}\""));
            page.lines().any(|line| is(&line))
        };
        // The collectives are no longer matched on all ranks, so no rank has those gauges.
        let joined = ["bus_bandwidth", "lateness"].iter().all(|of| !gauge.contains(of));
        assert_eq!(
            (0..8).map(reported).collect::<Vec<_>>(),
            [[joined; 4], [false; 4]].concat(),
            "{gauge}\n{page}"
        );
    }
    assert!(page.contains("xpu_top_job_step_mean_seconds{"), "{page}");
}

#[test]
fn no_series_occurs_twice() {
    let page = page();
    let lines: Vec<_> = page.lines().filter(|line| !line.starts_with('#')).collect();
    let series: BTreeSet<_> =
        lines.iter().filter_map(|line| line.rsplit_once(' ')).map(|(series, _)| series).collect();
    assert_eq!(series.len(), lines.len());
}

#[test]
fn names_of_metrics_are_unique_and_end_in_their_unit() {
    let names: BTreeSet<_> = catalogue::ALL.iter().map(Metric::name).collect();
    let stems: BTreeSet<_> = catalogue::ALL.iter().map(|metric| metric.stem.clone()).collect();
    assert_eq!((names.len(), stems.len()), (catalogue::ALL.len(), catalogue::ALL.len()));
    assert!(names.contains("xpu_top_gemm_flops_total") && names.contains("process_cpu_seconds_total"));
}

#[test]
fn the_documentation_has_every_metric() {
    let document = include_str!("../../../docs/http.md");
    for metric in catalogue::ALL {
        let row = format!(
            "| `{}` | {} | {} |",
            metric.name(),
            format!("{:?}", metric.kind).to_lowercase(),
            metric.help
        );
        assert!(document.lines().any(|line| line == row), "docs/http.md has no line {row}");
    }
}

#[test]
fn a_hostile_label_stays_one_label() {
    let mut exposition = Exposition::default();
    let long = "x".repeat(500);
    for text in ["a\"} 1\nevil 2", "back\\slash", &long] {
        exposition.gauge(catalogue::FINDINGS, &[("job", label(text))], 1.0);
    }
    let page = text(&exposition);
    assert_eq!(page.lines().filter(|line| line.starts_with("xpu_top_findings{")).count(), 3, "{page}");
    assert!(page.lines().all(|line| line.len() < 200) && !page.contains("\nevil"), "{page}");
}

#[test]
fn the_cost_of_stragglers_is_in_gpu_seconds_and_absent_without_an_estimate() {
    use crate::what_if::tests::LINE;
    let simulation = Simulation::new(2, 2, 4);
    let (known, now) = (known(&simulation), simulation.digests(99)[0].now);
    let what_ifs = WhatIfs::default();
    let page = || text(&Exposition::of(&known, &Own::default(), &what_ifs, &Pod::of_environment(), now));
    assert!(!page().contains("what_if"));
    let line = LINE.replace(r#""at":1800000099.0,"since""#, r#""at":1800000049.0,"since""#);
    assert!(what_ifs.take(&simulation.job, &line));
    let job = format!("job_name=\"{}\"", simulation.job);
    let first = page();
    for line in [
        format!("xpu_top_what_if_slowdown_ratio{{{job}}} 1.25"),
        format!("xpu_top_what_if_repaired_step_seconds{{{job},cause=\"ranks\"}} 0.101"),
        format!("xpu_top_what_if_lost_gpu_seconds_total{{{job},cause=\"all\"}} 360.0"),
        format!("xpu_top_what_if_rank_lost_gpu_seconds_total{{{job},rank=\"3\"}} 180.0"),
    ] {
        assert!(first.lines().any(|one| one == line), "no {line} in\n{first}");
    }
    assert!(!first.contains("money"), "without a price: {first}");
    let mut priced = Exposition::default();
    let of_job = what_ifs.of(&simulation.job).unwrap();
    what_if::expose(&mut priced, &[], &of_job, "2.5 EUR".parse().ok(), now);
    let money = "xpu_top_what_if_lost_money_total{cause=\"all\",currency=\"EUR\"} 0.25";
    assert!(text(&priced).lines().any(|one| one == money), "{}", text(&priced));
    let mut failed: serde_json::Value = serde_json::from_str(LINE).unwrap();
    failed.as_object_mut().unwrap().remove("estimate");
    let age = |page: &str| {
        page.lines().find(|line| line.starts_with("xpu_top_what_if_age_seconds")).map(str::to_owned)
    };
    failed["at"] = (1_800_000_089.0).into();
    assert!(what_ifs.take(&simulation.job, &failed.to_string()));
    let later = page();
    assert!(age(&first).is_some_and(|line| line.ends_with(" 50.0")) && age(&later) == age(&first), "{later}");
    assert!(!later.contains("what_if_slowdown") && later.contains("what_if_lost_gpu_seconds_total{"));
}
