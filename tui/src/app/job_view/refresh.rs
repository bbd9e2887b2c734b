//! Decides which part of the view is computed again: the rows of ranks that have reported, and the rest if
//! the job has changed.

use xpu_client::filter::Filter;
use xpu_model::job::Job;
use xpu_wire::{
    id::{HostName, Rank},
    unit::Moment,
};

use super::{Arrangement, Clock, Inspection, JobView, Listing, Metric, Row, compute::Examination};

/// Number of ranks whose figures are computed for one redraw. If more have reported, the others keep their
/// previous figures. With ten thousand ranks, half of this number reports between two redraws.
const AT_ONCE: usize = 2_048;

impl JobView {
    pub(in crate::app) fn update(
        &mut self,
        job: &Job,
        lost_frames: u64,
        now: Moment,
        listing: &Listing,
        judge: Metric,
        clock: impl Fn(&HostName) -> Clock,
    ) {
        if self.job != *job.name() {
            *self = Self { job: job.name().clone(), ..self.for_another_job() };
        }
        let (arrangement, filter) = (Arrangement::of(listing, job, judge), listing.filter.as_ref());
        // Ages are shown in seconds, so within one second only the job itself can change the picture.
        let making = Some((job.revision(), arrangement.clone(), now.0 / 1_000_000_000));
        let filtered = self.filtered.as_ref().map(|filtered| filtered.text.as_str());
        if self.made == making && filtered == filter.map(Filter::text) && !self.behind {
            return;
        }
        // With thousands of ranks, a redraw that computes findings updates no figures. This never happens
        // twice in a row, or figures would never be updated.
        let examination = Examination::of(job, now);
        let examines = self.examined != Some(examination) && job.ranks().len() > AT_ONCE;
        self.rested = examines && !self.rested;
        let is_over = !self.rows.is_empty() && job.living() == 0;
        if is_over != self.is_over() {
            // The last figures are kept.
            self.rows.iter_mut().for_each(Row::outdate);
        }
        let refreshed = self.refresh_rows(job, if self.rested { 0 } else { AT_ONCE });
        self.busy = job.ranks().len() > AT_ONCE && (examines || refreshed > AT_ONCE / 2);
        self.losses.frames = lost_frames;
        self.read_reports(job, clock);
        self.compute(job, now, examination);
        self.apply_filter(filter);
        if let Some((_, arrangement, _)) = &making {
            self.arrange(job, arrangement);
        }
        self.made = making;
    }

    /// Prepares the next computation of findings, for ranks that have just reported.
    pub(in crate::app) fn prepare(&mut self, job: &Job, ranks: impl Iterator<Item = Rank>) {
        if self.job == *job.name() {
            self.examiner.prepare(job, ranks);
        }
    }

    /// Computes the details of one rank, which may change without its row.
    pub(in crate::app) fn inspect(&mut self, job: &Job, rank: Option<Rank>) {
        let inspection = rank.map(|rank| (rank, job.revision()));
        if self.inspection != inspection {
            self.inspection = inspection;
            self.inspected = rank.and_then(|rank| Inspection::of(job, rank, self));
        }
    }

    /// Computes the ranks that have reported again, and returns their number. Ranks are only ever added to a
    /// job, so both lists have the same order.
    fn refresh_rows(&mut self, job: &Job, at_once: usize) -> usize {
        if self.rows.len() != job.ranks().len() {
            let mut old = std::mem::take(&mut self.rows).into_iter().peekable();
            for (rank, view) in job.ranks() {
                let kept = old.next_if(|row| row.status.rank == rank);
                self.rows.push(kept.unwrap_or_else(|| Row::of(job, rank, view)));
            }
        }
        let reported = self.rows.iter().zip(job.ranks()).filter(|(row, (_, view))| !row.is_of(view)).count();
        // All ranks that have reported, if there are not too many; otherwise, those after the last one that
        // was computed.
        let most = reported.min(at_once);
        let (mut left, from) = if reported <= at_once { (reported, 0) } else { (most, self.next) };
        self.next = 0;
        for (at, (row, (rank, view))) in self.rows.iter_mut().zip(job.ranks()).enumerate().skip(from) {
            if left == 0 {
                self.next = at;
                break;
            }
            if !row.is_of(view) {
                left -= 1;
                if row.status.host != *view.host() {
                    self.laid_out_for = None;
                }
                *row = Row::of(job, rank, view);
            }
        }
        self.behind = reported > at_once;
        most
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use xpu_client::arrival::Arrival;
    use xpu_model::status::Status;
    use xpu_simulation::Simulation;
    use xpu_wire::frame::{Body, Frame, Life};

    use super::*;
    use crate::{action::Action, app::App, palette::Depth, update::update};

    /// If a host no longer reports, a rank is gone, and another is silent, the screen shows the same figures
    /// as the JSON status, and no others.
    #[test]
    fn figures_on_the_screen_are_those_of_documents() {
        let simulation = Simulation::new(1, 2, 4);
        let mut app = App::new(Vec::new(), None, Depth::None, simulation.started);
        let mut arrive = |second: u64, frames: Vec<Frame>| {
            update(&mut app, Action::Time(simulation.started.after(Duration::from_secs(second))));
            for frame in frames {
                update(&mut app, Action::Arrive(Arrival::Frame(Box::new(frame))));
            }
            app.settle();
            let job = app.observed.jobs.foremost().unwrap();
            let status = Status::of(&app.observed.jobs, job, simulation.digests(second)[0].now);
            let shown: Vec<_> = app.job_view.rows().iter().map(|row| row.status.clone()).collect();
            (status, shown, app.job_view.headline)
        };
        arrive(10, simulation.snapshots(10));
        for second in 11..30 {
            let (status, shown, headline) = arrive(second, simulation.digests(second));
            assert_eq!((status.ranks, headline.age), (shown, None), "second {second}");
        }
        for second in 30..50 {
            let mut frame = simulation.digests(second).remove(0);
            let Body::Digest(digest) = &mut frame.body else { unreachable!() };
            digest.ranks[1].life = Life::Died;
            digest.ranks[2].heard = simulation.digests(29)[0].now;
            digest.ranks[2].life = Life::Silent;
            let (status, shown, _) = arrive(second, vec![frame]);
            assert_eq!(status.ranks, shown, "second {second}");
        }
        let (status, shown, headline) = arrive(60, Vec::new());
        assert_eq!(status.ranks, shown);
        assert!(shown.iter().all(|rank| rank.gemm_tflops.is_none() && rank.step_ms_mean.is_none()));
        assert!(headline.age.is_some_and(|age| age >= Duration::from_secs(10)), "{headline:?}");
        assert!(headline.gemm.is_some() && headline.step_time.is_some(), "as it was: {headline:?}");
    }

    /// If more ranks report than are computed for one redraw, all have had their turn after some redraws.
    /// Each is known to be alive immediately.
    #[test]
    fn every_rank_is_refreshed_during_a_flood() {
        let simulation = Simulation::new(1, 700, 8);
        let arrive = |app: &mut App, frames: Vec<Frame>| {
            for frame in frames {
                update(app, Action::Arrive(Arrival::Frame(Box::new(frame))));
            }
            app.settle();
        };
        let new = || App::new(Vec::new(), None, Depth::None, simulation.started);
        let mut app = new();
        arrive(&mut app, simulation.snapshots(100));
        assert!(!app.job_view.is_behind());
        for second in [107, 108, 109] {
            update(&mut app, Action::Time(simulation.started.after(Duration::from_secs(second - 100))));
            arrive(&mut app, simulation.digests(second));
            assert!(app.job_view.is_behind() && app.job_view.rows().iter().all(Row::is_heard), "{second}");
        }
        for _ in 0..5_600_usize.div_ceil(AT_ONCE) {
            app.settle();
        }
        assert!(!app.job_view.is_behind());
        let mut at_once = new();
        arrive(&mut at_once, simulation.snapshots(100));
        for second in [107, 108, 109] {
            for frame in simulation.digests(second) {
                at_once.observed.jobs.fold(&frame);
            }
        }
        at_once.job_view = JobView::default();
        at_once.settle();
        let steps = |app: &App| app.job_view.rows().iter().map(|row| row.status.clone()).collect::<Vec<_>>();
        assert_eq!(steps(&app), steps(&at_once));
    }
}
