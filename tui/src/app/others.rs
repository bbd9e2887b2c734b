//! Jobs other than the one that is shown.

use xpu_model::{
    finding,
    job::{Job, Jobs},
};
use xpu_wire::{id::JobName, unit::Moment};

#[derive(Debug, Default)]
pub struct Others {
    /// Jobs that make no progress, in this second.
    hang: Vec<JobName>,
    second: u64,
}

impl Others {
    pub fn hang(&self) -> &[JobName] {
        &self.hang
    }

    /// Names them in one line.
    pub fn text(&self) -> Option<String> {
        match &self.hang[..] {
            [] => None,
            [one] => Some(format!("another job makes no progress: {one}")),
            [first, more @ ..] => Some(format!(
                "{} other jobs make no progress: {first} and {} more",
                self.hang.len(),
                more.len()
            )),
        }
    }

    pub(super) fn settle(&mut self, jobs: &Jobs, shown: &Job, now: Moment) {
        let second = now.0 / 1_000_000_000;
        if self.second != second {
            self.second = second;
            let others = jobs.iter().filter(|other| other.name() != shown.name());
            let hang = others.filter(|other| finding::hangs(other, now));
            self.hang = hang.map(Job::name).cloned().collect();
        }
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::{
        frame::{Body, Event, Frame, Life},
        id::Rank,
    };

    use super::*;

    #[test]
    fn a_job_that_is_not_shown_is_looked_at_once_a_second() {
        let (shown, other) = (Simulation::new(3, 1, 4), Simulation::new(9, 1, 2));
        let other = Simulation { job: "eval".into(), ..other };
        let mut jobs = Jobs::default();
        shown.snapshots(20).iter().chain(&other.snapshots(20)).for_each(|frame| jobs.fold(frame));
        let (mut others, now) = (Others::default(), shown.snapshots(20)[0].now);
        others.settle(&jobs, jobs.get(&shown.job).unwrap(), now);
        assert_eq!(others.hang(), []);
        let pid = jobs.get(&other.job).unwrap().rank(Rank(0)).unwrap().pid();
        let life = Event::Life { job: other.job.clone(), rank: Rank(0), pid, life: Life::Died };
        jobs.fold(&Frame { body: Body::Event(life), ..other.snapshots(20).remove(0) });
        others.settle(&jobs, jobs.get(&shown.job).unwrap(), now);
        assert_eq!(others.hang(), [], "of this second it is known");
        let later = now.after(std::time::Duration::from_secs(1));
        others.settle(&jobs, jobs.get(&shown.job).unwrap(), later);
        assert_eq!(others.hang(), std::slice::from_ref(&other.job));
    }
}
