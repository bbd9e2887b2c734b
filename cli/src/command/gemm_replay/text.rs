//! The result of a replay, as text.

use std::{collections::BTreeMap, fmt::Write as _};

use xpu_analysis::{
    capture::{RankRate, RankRow, ShapeRow, StandsOut},
    render::Table,
};
use xpu_model::figure::{self, counted, three, whole_percent};
use xpu_wire::unit::Nanoseconds;

use super::Document;

/// Writing to a String cannot fail.
pub(super) fn text(document: &Document, top: usize) -> String {
    let (gpu, of) = (&document.gpu, &document.standalone);
    let mut out = format!(
        "{}: GEMMs of {} on GPU {} ({}), cuBLAS {}, each by itself\n",
        document.job,
        counted(of.ranks.len(), "rank", "ranks"),
        gpu.device,
        gpu.name.as_deref().unwrap_or("without a name"),
        gpu.cublas,
    );
    let (replayed, others): (Vec<_>, Vec<_>) = of.shapes.iter().partition(|row| row.not_replayed.is_none());
    let head = ["m x n x k", "count", "ms", "job", "best", "worst", "alone", "job/alone", "stands out"];
    let title = "TFLOPS by shape; job: the median of its ranks, and the best and the worst of them";
    Table::new(title, &head, &replayed, top, |row| line(row)).write(&mut out);
    if of.ranks.len() > 1 {
        let mut ranks: Vec<_> = of.ranks.iter().collect();
        ranks.sort_by(|a, b| a.ratio.unwrap_or(1.0).total_cmp(&b.ratio.unwrap_or(1.0)));
        let title = "by rank, the slowest first; speed: relative to this GPU alone";
        Table::new(title, &["rank", "host", "ms", "speed"], &ranks, top, |row| rank(row)).write(&mut out);
    }
    let mut whys: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in others {
        whys.entry(row.not_replayed.as_deref().unwrap_or("")).or_default().push(row.shape.to_string());
    }
    out.push('\n');
    for (why, shapes) in whys {
        let some = shapes.iter().take(3).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = if shapes.len() > 3 { format!(" and {} more", shapes.len() - 3) } else { String::new() };
        let _ = writeln!(out, "not replayed: {some}{more}: {why}");
    }
    let Some(ratio) = of.total.ratio else { return out };
    let covered = whole_percent(of.total.covered.unwrap_or(0.0));
    let _ = writeln!(
        out,
        "the job's GEMMs run at {} of what this GPU reaches alone ({covered} of their time was replayed)",
        whole_percent(ratio)
    );
    if let Some(StandsOut { rank, of_others }) = of.total.stands_out {
        let _ =
            writeln!(out, "rank {rank} is an outlier: it reaches {} of the others", whole_percent(of_others));
    }
    out
}

fn line(row: &ShapeRow) -> Vec<String> {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "?".to_owned(), three);
    let ends = |end: Option<RankRate>| rate(end.map(|end| end.tflops));
    let transposed = &row.text.transposed;
    vec![
        format!("{} {transposed}{}", row.shape, if row.text.compute.contains("tf32") { " tf32" } else { "" }),
        row.count.to_string(),
        figure::milliseconds(Nanoseconds(row.took.total_ns)),
        rate(row.job_tflops),
        ends(row.best),
        ends(row.worst),
        rate(row.alone_tflops.map(|alone| alone.0)),
        row.ratio.map_or_else(|| "?".to_owned(), whole_percent),
        row.stands_out
            .map_or_else(String::new, |of| format!("rank {} {}", of.rank, whole_percent(of.of_others))),
    ]
}

fn rank(row: &RankRow) -> Vec<String> {
    let speed = row.ratio.map_or_else(|| "?".to_owned(), whole_percent);
    vec![
        row.rank.to_string(),
        row.host.to_string(),
        figure::milliseconds(Nanoseconds(row.replayed_ns)),
        speed,
    ]
}
