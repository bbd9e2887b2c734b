//! The tables of a report: GEMMs, collectives, ranks that enter last, kernels, copies, the host.

use xpu_model::figure;
use xpu_wire::unit::Nanoseconds;

use super::Table;
use crate::{
    behaviour::{FunctionRow as BehaviourRow, amount},
    capture::{
        ArrivalRow, CollectiveRow, CopyRow, FunctionRow, GemmRow, HostKind, HostRow, KernelRow, Report,
        SlowRow, Spread, Work, python_place,
    },
};

pub(super) fn all(report: &Report, top: usize) -> Vec<Table> {
    let python = report.python.as_ref().map_or(&[][..], |python| &python.functions);
    let arrivals: Vec<_> = report.arrivals.iter().filter(|row| row.last > 0).copied().collect();
    vec![
        Table::new(
            "ranks that take longer than the others for the same work",
            &["what", "", "rank", "times", "p50 us", "others us", "ratio", "more ms a step"],
            &report.slower,
            top,
            slower,
        ),
        Table::new(
            "functions by share of the critical path of each rank",
            &["function", "", "ranks", "least", "median", "most", "on rank", "rate", "unusual on"],
            &report.behaviour.rows(),
            top,
            behaviour,
        ),
        Table::new(
            "GEMMs by shape",
            &["m x n x k", "count", "ms", "share", "p50 us", "p99 us", "TFLOPS"],
            &report.gemms,
            top,
            gemm,
        ),
        Table::new(
            "collectives by communicator and size; transfer: without waiting; wait: of one rank in one collective",
            &[
                "communicator",
                "operation",
                "bytes from",
                "count",
                "p50 us",
                "p99 us",
                "wait us",
                "share",
                "bus GB/s",
                "how",
            ],
            &report.collectives,
            top,
            collective,
        ),
        Table::new(
            if report.window.is_some() {
                "last into collectives, per second; cost: how long the waiting ranks computed nothing"
            } else {
                "last into collectives; cost: how much shorter a step would be"
            },
            &["rank", "last", "of", "cost ms", "others waited ms"],
            &arrivals,
            top,
            arrival,
        ),
        Table::new(
            "kernels",
            &["name", "", "count", "ms", "share", "p50 us", "p99 us"],
            &report.kernels,
            top,
            kernel,
        ),
        Table::new(
            "copies and fills",
            &["direction", "count", "bytes", "ms", "share", "GB/s", "held ms"],
            &report.copies,
            top,
            copy,
        ),
        Table::new(
            "on the host",
            &["name", "", "count", "ms", "share", "p50 ms", "max ms"],
            &report.host,
            top,
            host,
        ),
        Table::new(
            "Python, sampled: share of time in the function itself, and including its callees",
            &["function", "thread", "self", "total", "most on rank", "share", "median", "called by"],
            python,
            top,
            function,
        ),
    ]
}

fn behaviour(row: &BehaviourRow<'_>) -> Vec<String> {
    let share = |share: f64| format!("{} %", figure::two(share * 100.0));
    let rate = row.median_rate.zip(row.function.unit).map(|(rate, unit)| amount(rate, unit));
    vec![
        row.function.name.clone(),
        row.function.class.word().to_owned(),
        row.workers.to_string(),
        share(row.least_share),
        share(row.median_share),
        share(row.most_share),
        row.most.to_string(),
        rate.unwrap_or_else(|| "-".to_owned()),
        if row.abnormal == 0 { String::new() } else { row.abnormal.to_string() },
    ]
}

fn unknown<T>(value: Option<T>, say: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "?".to_owned(), say)
}

fn percent(share: Option<f64>) -> String {
    unknown(share, figure::percent)
}

fn ms(nanoseconds: u64) -> String {
    figure::milliseconds(Nanoseconds(nanoseconds))
}

fn us(nanoseconds: Option<u64>) -> String {
    unknown(nanoseconds, |nanoseconds| figure::microseconds(Nanoseconds(nanoseconds)))
}

/// The sum of all timed work.
fn total(took: &Spread) -> String {
    unknown((took.timed > 0).then_some(took.total_ns), ms)
}

fn gemm(row: &GemmRow) -> Vec<String> {
    vec![
        row.shape.to_string(),
        figure::count(row.count),
        total(&row.took),
        percent(row.share),
        us(row.took.p50_ns),
        us(row.took.p99_ns),
        unknown(row.tflops, |tflops| tflops.to_string()),
    ]
}

fn collective(row: &CollectiveRow) -> Vec<String> {
    let name = row.name.as_deref().unwrap_or(&row.communicator);
    let size = row.size.map_or_else(|| row.ranks.to_string(), |size| format!("{} of {size}", row.ranks));
    let each = (row.count * row.ranks as u64).max(1);
    vec![
        format!("{name} ({size})"),
        row.operation.clone(),
        figure::bytes(row.from_bytes),
        figure::count(row.count),
        us(row.transfer.p50_ns),
        us(row.transfer.p99_ns),
        row.wait_ns.map_or_else(|| "-".to_owned(), |wait| us(Some(wait / each))),
        percent(row.share),
        unknown(row.bus_gbytes_per_s, |rate| rate.to_string()),
        plan(&row.plans),
    ]
}

fn plan(plans: &[String]) -> String {
    match plans {
        [] => "?".to_owned(),
        [only] => only.clone(),
        [first, others @ ..] => format!("{first} +{}", others.len()),
    }
}

fn arrival(row: &ArrivalRow) -> Vec<String> {
    vec![
        row.rank.to_string(),
        figure::count(row.last),
        figure::count(row.collectives),
        ms(row.cost_ns()),
        ms(row.kept_waiting_ns()),
    ]
}

fn kernel(row: &KernelRow) -> Vec<String> {
    let work = if row.work == Work::Communication { "comm" } else { "" };
    vec![
        row.short.clone(),
        work.to_owned(),
        figure::count(row.count),
        total(&row.took),
        percent(row.share),
        us(row.took.p50_ns),
        us(row.took.p99_ns),
    ]
}

fn copy(row: &CopyRow) -> Vec<String> {
    vec![
        row.what.clone(),
        figure::count(row.count),
        figure::bytes(row.bytes),
        total(&row.took),
        percent(row.share.filter(|_| row.took.timed > 0)),
        unknown(row.gbytes_per_s, |rate| rate.to_string()),
        row.held_ns.map_or_else(|| "-".to_owned(), ms),
    ]
}

fn host(row: &HostRow) -> Vec<String> {
    let kind = match row.kind {
        HostKind::Function => "Python",
        HostKind::GarbageCollection => "gc",
        HostKind::DataLoader => "data",
        HostKind::Span => "span",
        HostKind::Blocked => "waits",
    };
    vec![
        row.name.clone(),
        kind.to_owned(),
        figure::count(row.took.timed.max(row.count)),
        total(&row.took),
        percent(row.share),
        unknown(row.took.p50_ns, ms),
        unknown(row.took.max_ns, ms),
    ]
}

/// Number of letters shown of a caller's name.
const CALLER: usize = 24;

fn function(row: &FunctionRow) -> Vec<String> {
    // The file name is enough: JSON has the whole path.
    let caller = row.paths.first().and_then(|path| path.calls.last());
    let caller = caller.and_then(|call| call.split(" (").next());
    vec![
        python_place(&row.function, &row.file, row.line),
        row.thread.clone(),
        percent(Some(row.self_share)),
        percent(Some(row.total_share)),
        row.most.to_string(),
        percent(Some(row.most_share)),
        percent(Some(row.median_share)),
        caller.unwrap_or_default().chars().take(CALLER).collect(),
    ]
}

fn slower(row: &SlowRow) -> Vec<String> {
    vec![
        row.name.clone(),
        row.kind.word().to_owned(),
        row.rank.to_string(),
        figure::count(row.timed),
        us(Some(row.p50_ns)),
        us(Some(row.others_p50_ns)),
        format!("{:.2}", row.ratio),
        ms(row.extra_per_step_ns),
    ]
}
