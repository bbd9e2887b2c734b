//! A scenario played through the job and its findings, and what they said.

use xpu_model::{
    finding::{self, Kind},
    job::Jobs,
};

use crate::{
    collector::{Collectors, moment},
    scenario::Scenario,
};

/// The budgets: a slow rank within steps or seconds, a hang within seconds.
const STEPS: f64 = 20.0;
const SECONDS: f64 = 30.0;
const HANG_SECONDS: f64 = 15.0;

/// A viewer has all frames of a second so long after the last was sent.
const ARRIVES: f64 = 0.1;

#[derive(Clone, Debug, Default)]
pub(crate) struct Verdict {
    /// After how long what was to be found was: in seconds, and in steps at their usual length.
    pub named: Option<(f64, f64)>,
    /// Whether that is within budget.
    pub in_time: bool,
    /// What was found and should not have been: when, and the evidence.
    pub wrong: Vec<(f64, String)>,
}

pub(crate) fn play(scenario: &Scenario) -> Verdict {
    let setting = &scenario.setting;
    let mut collectors = Collectors::new(setting);
    let mut jobs = Jobs::default();
    let mut verdict = Verdict::default();
    loop {
        let (frames, at) = collectors.second();
        for frame in &frames {
            jobs.fold(frame);
        }
        let now = at + ARRIVES;
        let Some(job) = jobs.foremost() else { continue };
        let since = now - collectors.trouble_at();
        let found = finding::examine(job, moment(now));
        for finding in &found {
            let text =
                format!("{:?} {:?} {:?}: {}", finding.kind, finding.class, finding.ranks, finding.evidence);
            match &scenario.expected {
                Some(expected) if since > 0.0 && expected.is(finding) => {
                    verdict.named.get_or_insert((since, since / setting.step));
                }
                // It is that rank, for a cause that is not known.
                Some(expected) if since > 0.0 && expected.is_without_cause(finding) => {}
                // Steps are longer then: that is so, if not all of it.
                Some(_) if since > 0.0 && !scenario.is_stall() && finding.kind == Kind::Regression => {}
                _ if verdict.wrong.len() < 4 => verdict.wrong.push((since, text)),
                _ => {}
            }
        }
        // What is named stays so; a little longer shows whether something wrong joins it.
        let settled = verdict.named.is_some_and(|(named, _)| since > named + 8.0);
        if now > setting.until || settled {
            break;
        }
    }
    verdict.in_time = scenario.may_be_left
        || verdict.named.is_some_and(|(seconds, steps)| {
            if scenario.is_stall() { seconds <= HANG_SECONDS } else { seconds <= SECONDS || steps <= STEPS }
        });
    verdict
}
