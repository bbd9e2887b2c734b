//! The metrics page of a job that trains.

use std::collections::BTreeMap;

use xpu_tests::program::until;

use crate::job::Demo;

/// The lines of a page by name, each with labels and value.
pub(crate) type Page = BTreeMap<String, Vec<(BTreeMap<String, String>, f64)>>;

/// Parses a page. An invalid line fails the test.
pub(crate) fn parse(text: &str) -> Page {
    let mut page = Page::new();
    for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("no value: {line}"));
        let value = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
        let (name, labels) = series.split_once('{').unwrap_or((series, "}"));
        let labels = labels.strip_suffix('}').unwrap_or_else(|| panic!("no end: {line}"));
        let labels = labels.split("\",").filter(|label| !label.is_empty()).map(|label| {
            let (name, text) = label.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            (name.to_owned(), text.trim_end_matches('"').to_owned())
        });
        page.entry(name.to_owned()).or_default().push((labels.collect(), value));
    }
    page
}

/// The value of the series that has these labels.
pub(crate) fn value(page: &Page, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |of: &BTreeMap<String, String>| {
        labels.iter().all(|(name, text)| of.get(*name).is_some_and(|have| have == text))
    };
    page.get(name)?.iter().find(|(of, _)| has(of)).map(|(_, value)| *value)
}

#[test]
fn metrics_and_status_agree() {
    let demo = Demo::start("--ranks 4 --nodes 1", &[]);
    let client = demo.client(1);
    let first = parse(&client.page());
    assert!(
        value(&first, "xpu_top_steps_total", &[("rank", "3")]).is_some_and(|steps| steps >= 5.0),
        "{first:?}"
    );
    let page = until("histograms of all ranks", || {
        let page = parse(&client.page());
        let reported = |rank: usize| {
            let rank = rank.to_string();
            let count = |name| value(&page, name, &[("rank", &rank)]).is_some_and(|count| count > 3.0);
            count("xpu_top_gemm_duration_seconds_count")
                && count("xpu_top_step_duration_seconds_count")
                && ["xpu_top_bus_bandwidth_bytes_per_second", "xpu_top_step_mean_seconds"]
                    .iter()
                    .all(|name| value(&page, name, &[("rank", &rank)]).is_some())
        };
        (0..4).all(reported).then_some(page)
    });
    let status = demo.status().expect("a document");
    for rank in 0..4 {
        let of = &status["ranks"][rank];
        let rank = rank.to_string();
        let on_page = |name: &str| value(&page, name, &[("rank", &rank)]).expect(name);
        let near = |name: &str, scale: f64, said: &serde_json::Value, slack: f64| {
            let (here, there) = (on_page(name) / scale, said.as_f64().expect(name));
            assert!((here / there - 1.0).abs() < slack, "{name} of rank {rank}: {here} here, {there} there");
        };
        near("xpu_top_gemm_rate_flops_per_second", 1e12, &of["gemm_tflops"], 0.25);
        near("xpu_top_step_median_seconds", 1e-3, &of["step_ms_p50"], 0.5);
        near("xpu_top_step_mean_seconds", 1e-3, &of["step_ms_mean"], 0.5);
        near("xpu_top_bus_bandwidth_bytes_per_second", 1e9, &of["bus_gb_s"], 0.5);
        // This request comes after the page, and the job has made more steps since.
        assert!(of["step"].as_f64().is_some_and(|step| on_page("xpu_top_steps_total") <= step), "{of:#}");
        assert_eq!(
            value(&page, "xpu_top_rank_state", &[("rank", &rank), ("state", "ok")]),
            Some(1.0),
            "{status:#}"
        );
    }
    assert_eq!(value(&page, "xpu_top_job_hang", &[]), Some(0.0));
    assert_eq!(value(&page, "xpu_top_job_world_size", &[]), Some(4.0));
    assert_eq!(value(&page, "xpu_top_exporter_ranks_without_detail", &[]), Some(0.0));
    assert_eq!(value(&page, "xpu_top_exporter_frames_missed_total", &[]), Some(0.0));
    let kinds = &page["xpu_top_collectives_total"];
    assert!(
        kinds
            .iter()
            .all(|(labels, _)| labels["communicator"] == "world" || !labels["communicator"].is_empty())
    );
    // Both are the hook's counts since the job began, reported a second apart: some ten steps with 84 GEMMs
    // each.
    let launched =
        value(&page, "xpu_top_launches_total", &[("rank", "0"), ("kind", "gemm")]).expect("launches");
    let of_rank = page["xpu_top_gemms_total"].iter().filter(|(labels, _)| labels["rank"] == "0");
    let by_type: f64 = of_rank.map(|(_, count)| count).sum();
    assert!((launched - by_type).abs() <= 84.0 * 25.0, "{launched} launched, {by_type} by type");
}
