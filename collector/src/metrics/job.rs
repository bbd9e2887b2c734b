//! A job as a whole, and its findings.

use std::collections::BTreeMap;

use xpu_model::{
    finding::{Finding, Lost},
    job::{Job, RankView, median, processes},
};
use xpu_wire::unit::{Moment, Nanoseconds};

use super::{
    Exposition, Label, catalogue as all, label,
    rank::{is_live, word},
    with,
};

/// Largest number of ranks listed per finding. A hang of ten thousand ranks names only the few ranks that
/// cause it.
const NAMED: usize = 64;

pub(super) fn expose(
    exposition: &mut Exposition,
    job: &Job,
    findings: &[Finding],
    is_stuck: bool,
    now: Moment,
) {
    let labels: Vec<Label> = vec![("job_name", label(job.name().as_str()))];
    let seen = processes(job.ranks().filter(|(_, view)| view.latest().is_some()).map(|(rank, _)| rank));
    exposition.gauge(all::JOB_WORLD_SIZE, &labels, f64::from(job.world_size()));
    exposition.gauge(all::JOB_RANKS_SEEN, &labels, seen as f64);
    exposition.gauge(all::JOB_RANKS_LIVING, &labels, job.living() as f64);
    exposition.gauge(all::JOB_HANG, &labels, f64::from(u8::from(is_stuck)));
    let live = || job.ranks().filter(|&(rank, view)| is_live(job, findings, rank, view, now));
    let over_ranks = |of: fn(&RankView) -> Option<Nanoseconds>| {
        median(live().filter_map(|(_, view)| of(view)).map(Nanoseconds::seconds).collect())
    };
    exposition.gauge(all::JOB_STEP_MEAN, &labels, over_ranks(RankView::step_time));
    exposition.gauge(all::JOB_STEP_MEDIAN, &labels, over_ranks(RankView::step_p50));
    exposition.gauge(all::JOB_JOINED, &labels, job.joined());
    exposition.gauge(all::JOB_TURNED_AWAY, &labels, f64::from(job.turned_away()));
    // If this collector sees only some of the ranks, or the job hangs elsewhere, the job may lose time
    // without findings here.
    let is_whole = !is_stuck && seen >= job.world_size() as usize;
    let lost = Lost::to(findings).map(|lost| lost.cost.pct / 100.0);
    exposition.gauge(
        all::JOB_LOST,
        &labels,
        lost.or_else(|| (findings.is_empty() && is_whole).then_some(0.0)),
    );
    expose_findings(exposition, &labels, findings);
}

fn expose_findings(exposition: &mut Exposition, labels: &[Label], findings: &[Finding]) {
    let mut kinds: BTreeMap<_, (u32, f64, Option<f64>)> = BTreeMap::new();
    for finding in findings {
        let kind = (finding.kind, finding.class, finding.severity, finding.confidence);
        let (count, age, cost) = kinds.entry(kind).or_default();
        *count += 1;
        *age = age.max(finding.since_s);
        let known = finding.cost.map(|cost| cost.pct / 100.0);
        *cost = [*cost, known].into_iter().flatten().max_by(f64::total_cmp);
    }
    for ((kind, class, severity, confidence), (count, age, cost)) in kinds {
        let more = [
            ("kind", kind.word()),
            ("class", &word(&class)),
            ("severity", &word(&severity)),
            ("confidence", &word(&confidence)),
        ];
        let labels = with(labels, &more);
        exposition.gauge(all::FINDINGS, &labels, f64::from(count));
        exposition.gauge(all::FINDING_AGE, &labels, age);
        exposition.gauge(all::FINDING_COST, &labels, cost);
    }
    let mut named: Vec<_> = findings
        .iter()
        .flat_map(|finding| finding.ranks.iter().take(NAMED).map(|rank| (finding.kind, finding.class, *rank)))
        .collect();
    named.sort_unstable();
    named.dedup();
    for (kind, class, rank) in named {
        let more = [("kind", kind.word()), ("class", &word(&class)), ("rank", &rank.to_string())];
        exposition.gauge(all::FINDING_RANK, &with(labels, &more), 1.0);
    }
}
