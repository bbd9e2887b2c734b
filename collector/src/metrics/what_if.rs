//! Metrics of what stragglers cost a job, from `xpu-top what-if --live`.

use xpu_model::finding::Price;
use xpu_wire::unit::Moment;

use super::{Exposition, Label, catalogue as all, with};
use crate::what_if::{Estimate, Total, WhatIf};

const SECONDS_PER_HOUR: f64 = 3600.0;

pub(super) fn expose(
    exposition: &mut Exposition,
    labels: &[Label],
    of_job: &WhatIf,
    price: Option<Price>,
    now: Moment,
) {
    let WhatIf { figures, estimated_at, .. } = of_job;
    // A capture without an estimate does not renew the last estimate.
    if let Some(at) = estimated_at {
        exposition.gauge(all::WHAT_IF_AGE, labels, (now.0 as f64 / 1e9 - at).max(0.0));
    }
    // If the last capture has no estimate, the step is unknown; the sums are kept.
    if let Some(Estimate { slowdown, step, losses }) = &figures.estimate {
        exposition.gauge(all::WHAT_IF_SLOWDOWN, labels, *slowdown);
        exposition.gauge(all::WHAT_IF_STEP, labels, step.simulated_ms / 1e3);
        exposition.gauge(all::WHAT_IF_IDEAL, labels, step.ideal_ms / 1e3);
        for loss in losses {
            let labels = with(labels, &[("cause", &loss.cause)]);
            exposition.gauge(all::WHAT_IF_REPAIRED, &labels, loss.repaired_ms / 1e3);
        }
    }
    let Total { estimates, failed, steps, gpu_hours, lost, ranks, hosts } = &figures.total;
    for (result, count) in [("estimate", estimates), ("failed", failed)] {
        exposition.counter(all::WHAT_IF_CAPTURES, &with(labels, &[("result", result)]), *count as f64);
    }
    exposition.counter(all::WHAT_IF_STEPS, labels, *steps as f64);
    exposition.counter(all::WHAT_IF_GPU, labels, gpu_hours * SECONDS_PER_HOUR);
    for (cause, lost) in lost {
        let labels = with(labels, &[("cause", cause)]);
        exposition.counter(all::WHAT_IF_LOST, &labels, lost.gpu_hours * SECONDS_PER_HOUR);
        let labels = with(&labels, &[("currency", lost.currency.as_deref().unwrap_or_default())]);
        // The document's amount of money is rounded to cents, so it is computed again.
        exposition.counter(all::WHAT_IF_MONEY, &labels, price.map(|price| price.of(lost.gpu_hours).amount));
    }
    for of in ranks {
        let labels = with(labels, &[("rank", &of.rank.to_string())]);
        exposition.counter(all::WHAT_IF_RANK_LOST, &labels, of.gpu_hours * SECONDS_PER_HOUR);
    }
    for of in hosts {
        let labels = with(labels, &[("host", of.host.as_str())]);
        exposition.counter(all::WHAT_IF_HOST_LOST, &labels, of.gpu_hours * SECONDS_PER_HOUR);
    }
}
