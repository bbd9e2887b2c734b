//! A qualification as text: a table of GPUs for each host, a table of figures, and the reason for each
//! failure.

use std::fmt::Write as _;

use xpu_analysis::{
    qualify::{Figure, Gpu, Host, Kind, Qualification, Verdict},
    render::Table,
};
use xpu_model::figure::{counted, three, whole_percent};

/// The largest GEMM of each type: the columns of the table of GPUs.
const COLUMNS: [&str; 4] = ["bf16 8192", "fp16 8192", "tf32 8192", "fp8 8192"];

/// Number of rows of a table: more than any host has GPUs.
const ROWS: usize = 64;

/// Writing to a String cannot fail.
pub(super) fn text(of: &Qualification) -> String {
    let mut out = String::new();
    for host in &of.hosts {
        of_host(host, &mut out);
    }
    figures(of, &mut out);
    between_hosts(of, &mut out);
    let count =
        |verdict| of.hosts.iter().flat_map(|host| &host.gpus).filter(|gpu| gpu.verdict == verdict).count();
    let hosts = |verdict| of.hosts.iter().filter(|host| host.verdict == verdict).count();
    let _ = writeln!(
        out,
        "\n{}: {} and {} pass; {} and {} fail; {} not measured",
        word(of.verdict),
        counted(count(Verdict::Pass), "GPU", "GPUs"),
        counted(hosts(Verdict::Pass), "host", "hosts"),
        counted(count(Verdict::Fail), "GPU", "GPUs"),
        counted(hosts(Verdict::Fail), "host", "hosts"),
        counted(hosts(Verdict::NotRun), "host", "hosts"),
    );
    out
}

fn word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "PASS",
        Verdict::Fail => "FAIL",
        Verdict::NotRun => "NOT RUN",
    }
}

fn of_host(host: &Host, out: &mut String) {
    if !out.is_empty() {
        out.push('\n');
    }
    let beside = if host.beside_job { ", beside a job" } else { "" };
    let _ = writeln!(out, "{}: {} ({:.0} s{beside})", host.host, word(host.verdict), host.seconds);
    let head = ["GPU", "bf16", "fp16", "tf32", "fp8", "memory", "to GPU", "from GPU", "C", "MHz", "W", ""];
    let title = "TFLOPS of GEMMs of 8192, GB/s of memory and PCIe; C, MHz and W while GEMMs run";
    Table::new(title, &head, &host.gpus, ROWS, row).write(out);
    for gpu in &host.gpus {
        if !gpu.condition.throttled_by.is_empty() {
            let by = gpu.condition.throttled_by.join(", ");
            let _ = writeln!(out, "GPU {}: clocks were held by: {by}", gpu.index);
        }
        for what in &gpu.not_measured {
            let _ = writeln!(out, "GPU {}: not measured: {what}", gpu.index);
        }
    }
    let pairs: Vec<_> = host.pairs.iter().map(|pair| &pair.figure).collect();
    if let Some((lowest, highest)) = ends(&pairs) {
        let _ = writeln!(
            out,
            "GPU to GPU: {} to {} GB/s in {}",
            three(lowest),
            three(highest),
            counted(pairs.len(), "direction", "directions")
        );
    }
    let without = host.pairs.iter().filter(|pair| !pair.access).count();
    if without > 0 {
        let _ = writeln!(
            out,
            "{} through the host: the GPUs cannot access each other's memory",
            counted(without, "direction goes", "directions go")
        );
    }
    if let Some(figure) = &host.all_reduce {
        let _ = writeln!(out, "all-reduce over {}", bus(figure));
    }
    for what in &host.not_measured {
        let _ = writeln!(out, "not measured: {what}");
    }
    for why in host.not_run.iter().chain(&host.why) {
        let _ = writeln!(out, "{}: {why}", word(host.verdict));
    }
}

fn bus(figure: &Figure) -> String {
    let [median, low, high] = [figure.median, figure.low, figure.high].map(three);
    format!("{}: {median} GB/s of bus bandwidth ({low} to {high})", figure.name)
}

fn ends(figures: &[&Figure]) -> Option<(f64, f64)> {
    let rates = || figures.iter().map(|figure| figure.median);
    Some((rates().min_by(f64::total_cmp)?, rates().max_by(f64::total_cmp)?))
}

fn row(gpu: &Gpu) -> Vec<String> {
    let find = |kind: Kind, name: &str| {
        let found = gpu.figures.iter().find(|figure| figure.kind == kind && figure.name == name);
        found.map_or_else(|| "-".to_owned(), |figure| three(figure.median))
    };
    let number = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.0}"));
    let condition = &gpu.condition;
    let mut cells = vec![format!("{} {}", gpu.index, gpu.uuid.as_deref().unwrap_or(""))];
    cells.extend(COLUMNS.map(|name| find(Kind::Gemm, name)));
    cells.extend([Kind::Memory, Kind::ToGpu, Kind::FromGpu].map(|kind| find(kind, "")));
    cells.push(number(condition.temperature_c.map(f64::from)));
    cells.push(number(condition.sm_clock_mhz.map(f64::from)));
    cells.push(number(condition.power_w));
    cells.push(word(gpu.verdict).to_owned());
    cells
}

/// Each figure over all GPUs of a model: the median, and the lowest figure relative to the peak, the other
/// GPUs and past runs.
fn figures(of: &Qualification, out: &mut String) {
    let gpus = || of.hosts.iter().flat_map(|host| host.gpus.iter().map(move |gpu| (host, gpu)));
    let mut models: Vec<_> = gpus().map(|(_, gpu)| gpu.name.as_deref().unwrap_or("unknown model")).collect();
    models.sort_unstable();
    models.dedup();
    for model in models {
        let alike = || gpus().filter(|(_, gpu)| gpu.name.as_deref().unwrap_or("unknown model") == model);
        let mut titles: Vec<_> = Vec::new();
        for title in alike().flat_map(|(_, gpu)| gpu.figures.iter().map(Figure::title)) {
            if !titles.contains(&title) {
                titles.push(title);
            }
        }
        let head = ["figure", "unit", "median", "lowest", "of peak", "of others", "of past", "spread", "on"];
        let title = format!("{model}: the median of its GPUs, and the lowest of them with its shares");
        Table::new(title, &head, &titles, ROWS, |title| {
            let same = alike().flat_map(|(host, gpu)| {
                gpu.figures
                    .iter()
                    .filter(|figure| figure.title() == *title)
                    .map(move |figure| (host, gpu, figure))
            });
            let mut same: Vec<_> = same.collect();
            same.sort_by(|a, b| a.2.median.total_cmp(&b.2.median));
            let median = xpu_model::job::median(same.iter().map(|(_, _, figure)| figure.median).collect());
            let (host, gpu, lowest) = same[0];
            let share = |share: Option<f64>| share.map_or_else(|| "-".to_owned(), whole_percent);
            vec![
                title.clone(),
                lowest.kind.unit().to_owned(),
                three(median.unwrap_or(lowest.median)),
                three(lowest.median),
                share(lowest.of_peak),
                share(lowest.of_neighbours),
                share(lowest.of_past),
                share(Some((lowest.high - lowest.low) / lowest.median)),
                format!("{} GPU {}", host.host, gpu.index),
            ]
        })
        .write(out);
    }
}

fn between_hosts(of: &Qualification, out: &mut String) {
    let title = "pairs of hosts: all-reduce over all GPUs of both, GB/s of bus bandwidth";
    let head = ["hosts", "median", "low", "high", "of others", ""];
    Table::new(title, &head, &of.host_pairs, ROWS, |pair| {
        let name = pair.hosts.join(" - ");
        let Some(figure) = &pair.figure else {
            let why = pair.error.clone().unwrap_or_default();
            return vec![format!("{name}: {why}")];
        };
        let [median, low, high] = [figure.median, figure.low, figure.high].map(three);
        let others = figure.of_neighbours.map_or_else(|| "-".to_owned(), whole_percent);
        vec![name, median, low, high, others, word(figure.verdict).to_owned()]
    })
    .write(out);
    if let Some(figure) = &of.all_reduce {
        let _ = writeln!(out, "\nall hosts, all-reduce over {}", bus(figure));
    }
    for why in &of.errors {
        let _ = writeln!(out, "FAIL: {why}");
    }
}
