//! The step, or the moment, from which all ranks record: the earliest that no rank has reached when the order
//! arrives.

use std::time::Duration;

use xpu_model::job::RankView;
use xpu_wire::{id::Step, unit::Nanoseconds};

/// Greatest age of a rank's known step count, including part of the time that the order takes.
const NEWS: Duration = Duration::from_millis(2500);

/// The message for a rank without known steps.
pub(super) const NO_STEPS: &str =
    "none of its steps is known; capture a period instead: `xpu-top capture --for 500ms`";

/// Time until a period begins: enough for every rank to receive the order and begin to time its work. The
/// second try allows for a slower order.
pub(super) fn lead(again: bool) -> Duration {
    if again { 2 * FRESH_NEWS } else { FRESH_NEWS }
}

/// Like [`NEWS`], on the second try: the ranks' steps are known by then.
const FRESH_NEWS: Duration = Duration::from_millis(1500);

/// Extra steps of margin, because some steps are shorter than others.
const STEPS_MORE: u64 = 3;

/// Steps this short may come in bursts, if the program waits for the GPU only once in many steps. Their rate
/// is measured, for at most this long.
const SHORT: Nanoseconds = Nanoseconds(12_000_000);
pub(super) const LISTEN: Duration = Duration::from_secs(3);

/// Whether the steps per second of all ranks are known, with bursts or without.
pub(super) fn is_rate_known(views: &[&RankView]) -> bool {
    let mut short =
        views.iter().filter(|view| view.is_alive() && usual(view).is_some_and(|step| step <= SHORT));
    short.all(|view| view.step_time().is_some())
}

/// The first step to record. `None` while no rank's steps are known.
pub(super) fn first_step(views: &[&RankView], again: Option<Again>) -> Option<Step> {
    let completed = completed(views);
    let pace = views.iter().filter_map(|view| pace(view)).map(|pace| pace.0).min().filter(|&pace| pace > 0);
    let within = |news: Duration| (news.as_nanos() as u64).div_ceil(pace.unwrap_or(1_000_000_000));
    let (completed, ahead) = match again {
        None => (completed?, within(NEWS)),
        // A burst was larger than any seen before, or steps became shorter. The next burst may be as large.
        Some(Again { known, furthest }) => {
            let completed = completed.max(furthest)?;
            (completed, within(FRESH_NEWS).max(completed.saturating_sub(known.unwrap_or(completed))))
        }
    };
    Some(Step(completed + ahead + STEPS_MORE))
}

/// A second try, because a rank was past the first chosen step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Again {
    /// The known completed steps at the first try, and the steps that the furthest rank had really completed.
    pub(super) known: Option<u64>,
    pub(super) furthest: Option<u64>,
}

/// Known completed steps of the furthest rank.
pub(super) fn completed(views: &[&RankView]) -> Option<u64> {
    views.iter().filter_map(|view| view.step()).map(|step| step.0).max()
}

fn usual(view: &RankView) -> Option<Nanoseconds> {
    view.step_time().or_else(|| view.pace())
}

/// Mean time until the rank's next step. If steps are short and none completed during the measurement, the
/// rank is between bursts. If steps became longer some seconds ago, the latest steps count.
fn pace(view: &RankView) -> Option<Nanoseconds> {
    let usual = usual(view)?;
    let between = || Nanoseconds::from(view.listened().max(LISTEN));
    let mean = if usual > SHORT { usual } else { view.step_time().unwrap_or_else(between) };
    Some(view.latest_step_time().map_or(mean, |latest| latest.max(mean)))
}

#[cfg(test)]
mod tests {
    use xpu_model::job::Jobs;
    use xpu_simulation::Simulation;
    use xpu_wire::frame::Body;

    use super::*;

    /// A job of one rank with ten seconds of digests, each with this number of steps that took 1 ms at the
    /// median.
    fn jobs_with(steps: impl Fn(u64) -> u32) -> Jobs {
        let (mut jobs, simulation) = (Jobs::default(), Simulation::new(1, 1, 1));
        for second in 100..110 {
            for mut frame in simulation.digests(second) {
                let Body::Digest(digest) = &mut frame.body else { continue };
                let later: u64 = (second + 1..110).map(|second| u64::from(steps(second))).sum();
                let steps = steps(second);
                digest.ranks[0].step = Some(Step(5_000 - later));
                digest.ranks[0].step_median = (steps > 0).then_some(Nanoseconds(1_000_000));
                digest.ranks[0].step_count = steps;
                jobs.fold(&frame);
            }
        }
        jobs
    }

    fn with<T>(jobs: &Jobs, ask: impl Fn(&[&RankView]) -> T) -> T {
        let job = jobs.foremost().expect("it was told of");
        ask(&job.ranks().map(|(_, view)| view).collect::<Vec<_>>())
    }

    /// A program that waits for the GPU once in many steps launches most steps in an instant.
    #[test]
    fn bursts_of_steps_do_not_shorten_the_estimate() {
        let steady = jobs_with(|_| 10);
        assert!(with(&steady, is_rate_known));
        assert_eq!(with(&steady, |views| first_step(views, None)), Some(Step(5_000 + 25 + STEPS_MORE)));
        // One burst of steps, and none after it.
        let rare = jobs_with(|second| if second == 100 { 100 } else { 0 });
        assert!(!with(&rare, is_rate_known));
        assert_eq!(with(&rare, |views| first_step(views, None)), Some(Step(5_000 + 1 + STEPS_MORE)));
        let again = Again { known: Some(5_000), furthest: Some(5_100) };
        let first = with(&rare, |views| first_step(views, Some(again)));
        assert_eq!(first, Some(Step(5_100 + 100 + STEPS_MORE)));
    }

    /// With the rate of the short steps, the first step would be a hundred long steps away.
    #[test]
    fn the_estimate_follows_steps_that_became_longer() {
        let slower = jobs_with(|second| if second < 107 { 100 } else { 5 });
        let first = with(&slower, |views| first_step(views, None));
        assert_eq!(first, Some(Step(5_000 + 13 + STEPS_MORE)));
    }

    /// The number of steps during the measurement does not matter.
    #[test]
    fn long_steps_take_what_they_usually_take() {
        let (mut jobs, simulation) = (Jobs::default(), Simulation::new(1, 1, 1));
        for second in [100, 101, 160] {
            simulation.digests(second).iter().for_each(|frame| jobs.fold(frame));
        }
        let ahead =
            with(&jobs, |views| first_step(views, None).map(|first| first.0 - completed(views).unwrap_or(0)));
        assert_eq!(ahead, Some(2_500 / 111 + 1 + STEPS_MORE));
    }
}
