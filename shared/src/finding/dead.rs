//! Ranks whose process is gone.

use super::{Class, Confidence, Finding, Kind};
use crate::{
    frame::Life,
    job::{Job, RankView},
    unit::Moment,
};

pub(super) fn ranks(job: &Job, now: Moment) -> Option<Finding> {
    let dead: Vec<_> = job.ranks().filter(|(_, view)| view.life() == Life::Died).collect();
    let gone = |view: &RankView| view.gone().unwrap_or_else(|| view.heard());
    let (first, view) = dead.iter().min_by_key(|(_, view)| gone(view))?;
    let since = now.since(gone(view)).as_secs_f64();
    let when = match view.gone() {
        Some(_) => format!("{since:.0} s ago"),
        None => format!("and was last heard {since:.0} s ago"),
    };
    let evidence = format!(
        "rank {first} ({host}, pid {pid}) ended without an orderly exit {when}, at step {step}",
        host = view.host(),
        pid = view.pid(),
        step = view.step().map_or_else(|| "unknown".to_owned(), |step| step.to_string()),
    );
    Some(Finding {
        kind: Kind::Exited,
        class: Class::Dead,
        ranks: dead.iter().map(|&(rank, _)| rank).collect(),
        confidence: Confidence::Certain,
        since_s: since,
        evidence,
        advice: "look for a signal, the OOM killer or a traceback in its log".to_owned(),
        collective: None,
    })
}
