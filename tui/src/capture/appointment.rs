//! The step from which all ranks record: one that none has begun when it hears of it, and no later than that takes.

use std::time::Duration;

use xpu_shared::{id::Step, job::RankView, unit::Nanoseconds};

/// What is known of a rank's steps is at most so old, and telling it which to record takes some of that too.
const NEWS: Duration = Duration::from_millis(2500);

/// On the second try it is known how far the ranks are.
const FRESH_NEWS: Duration = Duration::from_millis(1500);

/// Steps that are left beyond that, for those that are shorter than others.
const STEPS_MORE: u64 = 3;

/// Steps so short may come in bursts: how many come in a second is listened for, but no longer than that.
const SHORT: Nanoseconds = Nanoseconds(12_000_000);
pub(super) const LISTEN: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    First,
    /// A rank was past the step that was chosen first.
    Again,
}

fn usual(view: &RankView) -> Option<Nanoseconds> {
    view.step_time().or_else(|| view.pace())
}

/// Whether it is known of all how many steps come in a second, bursts or not.
pub(super) fn is_rate_known(views: &[&RankView]) -> bool {
    views.iter().all(|view| usual(view).is_none_or(|step| step > SHORT) || view.time_per_step().is_some())
}

/// `None` while no step is known of any.
pub(super) fn first_step(views: &[&RankView], furthest: Option<u64>, turn: Turn) -> Option<Step> {
    let known = views.iter().filter_map(|view| view.step()).map(|step| step.0).max();
    let completed = known.max(furthest)?;
    let (news, pace): (_, &dyn Fn(&RankView) -> _) = match turn {
        Turn::First => (NEWS, &|view| view.time_per_step().or_else(|| usual(view))),
        // It ran faster than it mostly does: as fast as most of its steps are, then.
        Turn::Again => (FRESH_NEWS, &usual),
    };
    let shortest =
        views.iter().filter_map(|view| pace(view)).map(|pace| pace.0).min().filter(|&pace| pace > 0);
    let ahead = (news.as_nanos() as u64).div_ceil(shortest.unwrap_or(1_000_000_000));
    Some(Step(completed + ahead + STEPS_MORE))
}

#[cfg(test)]
mod tests {
    use xpu_shared::{frame::Body, job::Jobs, simulation::Simulation};

    use super::*;

    /// Most steps of a program that waits for the GPU once in many are launched in an instant.
    #[test]
    fn steps_that_come_in_bursts_are_not_waited_for_as_if_all_were_so_short() {
        let (mut jobs, simulation) = (Jobs::default(), Simulation::new(1, 1, 1));
        for second in 100..110 {
            if let Some(job) = jobs.foremost() {
                let known: Vec<_> = job.ranks().map(|(_, view)| is_rate_known(&[view])).collect();
                assert_eq!(known, [second > 101], "{second}");
            }
            for mut frame in simulation.digests(second) {
                let Body::Digest(digest) = &mut frame.body else { continue };
                digest.ranks[0].step_median = Some(Nanoseconds(1_000_000));
                digest.ranks[0].step_count = 10;
                jobs.fold(&frame);
            }
        }
        let job = jobs.foremost().expect("it was told of");
        let views: Vec<_> = job.ranks().map(|(_, view)| view).collect();
        let first_step = |turn| first_step(&views, Some(50_000), turn);
        assert_eq!(first_step(Turn::First), Some(Step(50_000 + 25 + STEPS_MORE)));
        assert_eq!(first_step(Turn::Again), Some(Step(50_000 + 1_500 + STEPS_MORE)));
    }
}
