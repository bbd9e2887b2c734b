//! Programs that read xpu-timer's page can also read the collector's. It has the names, label sets, types and
//! units of the sample in xpu-timer's documentation (`xpu_timer_sample.txt`, one line of each).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::json;
use xpu_tests::program::until;

use crate::{
    client::Client,
    job::Demo,
    metrics::{Page, parse, value},
};

const SAMPLE: &str = include_str!("xpu_timer_sample.txt");

/// Metrics that are in xpu-timer's code but not in its sample.
const BESIDES: [&str; 1] = ["XPU_TIMER_MEMORY_COUNTER"];

fn types(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' ')).collect()
}

/// The label names of each metric. A shape in a name represents all shapes.
fn label_sets(page: &Page) -> BTreeMap<String, BTreeSet<Vec<String>>> {
    let mut sets: BTreeMap<String, BTreeSet<Vec<String>>> = BTreeMap::new();
    for (name, series) in
        page.iter().filter(|(name, _)| name.starts_with("XPU_TIMER") || name.starts_with("atorch"))
    {
        let parts = name.split('_').filter(|part| part.parse::<u64>().is_err());
        let set = sets.entry(parts.collect::<Vec<_>>().join("_")).or_default();
        set.extend(series.iter().map(|(labels, _)| labels.keys().cloned().collect()));
    }
    sets
}

fn compat(demo: &Demo) -> (Client, String) {
    let client = demo.client(1);
    let page = until("the window to have GEMMs and collectives", || {
        let page = client.page();
        ["XPU_TIMER_MM_KERNEL_FLOPS{", "XPU_TIMER_COLL_KERNEL_BANDWIDTH{", "_p9999_latency{", "_qps{"]
            .iter()
            .all(|name| page.contains(name))
            .then_some(page)
    });
    (client, page)
}

/// Parses the page as `DLRover`'s agent does: it keeps lines that begin with the metric's name, and takes the
/// last integer of each.
fn dlrover_hang(page: &str) -> Vec<i64> {
    let lines = page.lines().filter(|line| line.starts_with("XPU_TIMER_COMMON_HANG"));
    let last = |line: &str| {
        let digits = line.rsplit(|c: char| !c.is_ascii_digit()).find(|part| !part.is_empty());
        digits.and_then(|digits| digits.parse().ok()).unwrap_or(-1)
    };
    lines.map(last).collect()
}

#[test]
fn readers_of_xpu_timer_read_these_metrics() {
    let set = [
        ("XPU_TOP_COMPAT", "xpu-timer"),
        ("XPU_TOP_PER_SHAPE", "1"),
        ("XPU_TOP_TRACE_FUNCS_ALWAYS", "1"),
        ("POD_NAME", "pod-7"),
    ];
    let demo = Demo::start("--ranks 2 --nodes 1", &set);
    let (client, text) = compat(&demo);
    let (theirs, page) = (parse(SAMPLE), parse(&text));
    let (wanted, have) = (label_sets(&theirs), label_sets(&page));
    for (name, sets) in &wanted {
        // The demo makes no batched GEMMs.
        if name.starts_with("atorch_bmm") {
            continue;
        }
        assert_eq!(have.get(name), Some(sets), "{name}");
    }
    let more: Vec<_> = have.keys().filter(|name| !wanted.contains_key(*name)).collect();
    assert!(more.iter().all(|name| BESIDES.contains(&name.as_str())), "{more:?}");
    let (their_types, our_types) = (types(SAMPLE), types(&text));
    for (name, kind) in our_types.iter().filter(|(name, _)| name.starts_with("XPU_TIMER")) {
        assert_eq!(their_types.get(name).copied().unwrap_or("gauge"), *kind, "{name}");
    }
    units(&demo, &page);
    assert_eq!(dlrover_hang(&text), [0, 0], "both ranks, and whole numbers");
    assert!(page["XPU_TIMER_COMMON_HANG"].iter().all(|(labels, _)| labels["pod_name"] == "pod-7"));
    control(&demo, &client);
}

/// The simulated GPU multiplies at 500 TFLOPS, and its links move 150 GB/s.
fn units(demo: &Demo, page: &Page) {
    let status = demo.status().expect("a document");
    let all = |name: &str| page[name].iter().map(|(_, value)| *value).collect::<Vec<_>>();
    let tflops = status["ranks"][0]["gemm_tflops"].as_f64().expect("a rate");
    for value in all("XPU_TIMER_MM_KERNEL_FLOPS") {
        assert!((value / tflops - 1.0).abs() < 0.2, "{value} is not {tflops} TFLOPS");
    }
    for value in all("XPU_TIMER_COLL_KERNEL_BANDWIDTH") {
        // The time includes waiting, so the rate is at most that of the transfer alone: 1,200 Gbit/s.
        assert!((10.0..1300.0).contains(&value), "{value} Gbit/s");
    }
    let latencies = page.iter().filter(|(name, _)| name.ends_with("_LATENCY"));
    for (name, series) in latencies {
        for (labels, value) in series {
            assert!(
                value.fract() == 0.0 && (10.0..10_000_000.0).contains(value),
                "{name}{labels:?} {value} us"
            );
        }
    }
    let of = |name: &str| {
        value(page, &format!("XPU_TIMER_MM_KERNEL_{name}_LATENCY"), &[("rank", "0")]).expect(name)
    };
    assert!(of("MIN") <= of("AVG") && of("AVG") <= of("MAX") && of("P99") <= of("MAX"));
    let levels =
        page["XPU_TIMER_COLL_KERNEL_BANDWIDTH"].iter().map(|(labels, _)| labels["level"].parse::<u32>());
    assert!(levels.flatten().all(|level| (1..=20).contains(&level)));
    let qps: f64 =
        page.iter().filter(|(name, _)| name.ends_with("_qps")).flat_map(|(_, all)| all).map(|(_, n)| n).sum();
    assert!(qps > 100.0, "{qps} GEMMs a second");
}

/// Sends the two requests of xpu-timer's tools.
fn control(demo: &Demo, client: &Client) {
    let gauges = |name: &str| {
        let page = parse(&client.page());
        page[&format!("XPU_TIMER_COMMON_{name}_DUMP")].iter().map(|(_, value)| *value).collect::<Vec<_>>()
    };
    assert_eq!((gauges("START"), gauges("END")), (vec![0.0; 2], vec![0.0; 2]));
    let dump =
        json!({ "dump_path": "/root/output", "dump_count": 200, "dump_time": 0, "dump_kernel_type": 7 });
    let begun = client.ask("GET", "/HostingService/DumpKernelTrace", Some(&dump.to_string()));
    assert_eq!((begun.status, &begun.json()["msg"]), (200, &json!("Starting dumping")), "{begun:?}");
    let ignored = begun.json()["ignored"].to_string();
    assert!(ignored.contains("dump_path") && !ignored.contains("dump_kernel_type"), "{ignored}");
    until("the page to tell of the dump", || (gauges("START") == [1.0, 1.0]).then_some(()));
    let again = client.post("/HostingService/DumpKernelTrace", &dump);
    assert_eq!(again.json()["msg"], "The process is dumping, skip");
    let pid = demo.status().expect("a document")["ranks"][1]["pid"].clone();
    for wanted in [json!({ "rank": 1 }), json!({ "pid": pid, "rank": 1 })] {
        let answer = client.post("/HostingService/DumpStringStacktrace", &wanted);
        assert!(
            answer.status == 200 && answer.json()["stacktrace"].as_str().is_some_and(|text| text.len() > 20),
            "{answer:?}"
        );
    }
    let mine = std::process::id();
    let refused = client.post("/HostingService/DumpStringStacktrace", &json!({ "pid": mine, "rank": 1 }));
    assert_eq!(refused.status, 404, "nobody else's process is read: {refused:?}");
    let path = begun.json()["capture"].as_str().expect("a path").to_owned();
    until("the capture", || (client.get(&path).json()["state"] == "done").then_some(()));
    let said = client.get(&path).json()["said"].to_string();
    assert!(!said.contains("Ctrl-C") && !said.contains("some seconds longer"), "{said}");
    until("the page to tell of its end", || {
        (gauges("START") == [0.0, 0.0] && gauges("END") == [1.0, 1.0]).then_some(())
    });
    assert!(!std::path::Path::new("/root/output").exists(), "a path in a request is not followed");
}

/// Rank 3 does not enter a collective. The other host cannot see this, and all its ranks wait.
#[test]
fn every_host_reports_a_hung_job() {
    let demo = Demo::start("--ranks 4 --nodes 2 --hang 60:3 --stay", &[("XPU_TOP_COMPAT", "xpu-timer")]);
    let pages = || [1, 2].map(|node| demo.client(node).page());
    let hangs = |page: &String| {
        let job = value(&parse(page), "xpu_top_job_hang", &[]);
        (job, dlrover_hang(page))
    };
    assert_eq!(
        pages().each_ref().map(hangs),
        [(Some(0.0), vec![0, 0]), (Some(0.0), vec![0, 0])],
        "it trains"
    );
    let reported = until("both hosts to say that it hangs", || {
        let reported = pages().each_ref().map(hangs);
        reported.iter().all(|(job, _)| *job == Some(1.0)).then_some(reported)
    });
    assert!(reported.iter().all(|(_, ranks)| *ranks == [1, 1]), "{reported:?}");
}
