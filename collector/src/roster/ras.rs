//! The processes of a job through which NCCL's RAS service can be asked.

use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use super::Roster;
use crate::{ras::Target, stacks::Reach, worker::Worker};

impl Roster {
    /// The processes of a job here that can be asked. `None` if `rank` does not live here: the collector of
    /// its host asks.
    pub(crate) fn ras_target(&self, job: &JobName, rank: Rank, now: Moment) -> Option<Target> {
        let living = || self.processes(job).filter(|worker| worker.is_there());
        living().find(|worker| worker.info.rank.process() == rank)?;
        let creating = self.creates_communicator();
        let targets = living().map(|worker| worker.target(false, now));
        let mut here: Vec<_> = targets.filter(|target| target.reach == Reach::Here).collect();
        here.sort_by_key(|target| (target.rank.process() != rank, target.rank));
        Some(Target { job: job.clone(), pids: here.iter().map(|target| target.pid).collect(), creating })
    }

    /// Whether a rank of any job here is creating a communicator. All jobs count, because at a shared port
    /// the kernel chooses the process that is asked.
    pub(crate) fn creates_communicator(&self) -> bool {
        let mut living = self.places.values().filter(|worker| worker.is_there());
        living.any(Worker::creates_communicator)
    }
}

#[cfg(test)]
mod tests {
    use std::process::id;

    use xpu_wire::{
        frame::RankInfo,
        id::Pid,
        ledger::{Call, LedgerPage},
    };

    use super::*;
    use crate::roster::Identity;

    /// A rank whose ledger page is in this process.
    fn rank(rank: u32, page: &LedgerPage) -> RankInfo {
        RankInfo {
            job: "j".into(),
            rank: Rank(rank),
            world_size: 4,
            local_rank: None,
            pid: Pid(id()),
            started: Moment(0),
            program: String::new(),
            version: String::new(),
            ledger: page.descriptor().map(|descriptor| descriptor as u32),
        }
    }

    #[test]
    fn the_host_of_the_rank_queries_ras_unless_a_communicator_is_being_created() {
        let (job, now) = (JobName::from("j"), Moment(2_000_000_000));
        let pages = [LedgerPage::create().unwrap(), LedgerPage::create().unwrap()];
        let mut roster = Roster::default();
        for (number, page) in (1..).zip(&pages) {
            roster.hello(&Identity(vec![number as u8]), 0, rank(number, page), Moment(0));
        }
        assert_eq!(roster.ras_target(&job, Rank(0), now), None, "it lives elsewhere");
        let target = roster.ras_target(&job, Rank(1), now).unwrap();
        assert_eq!((target.pids, target.creating), (vec![Pid(id()); 2], false));
        let thread = &pages[1].ledger().threads[0];
        assert!(thread.claim(42));
        thread.enter(Call::StreamSynchronize, Moment(1));
        assert!(!roster.ras_target(&job, Rank(1), now).unwrap().creating);
        thread.enter(Call::CommunicatorInit, Moment(1));
        assert!(roster.ras_target(&job, Rank(1), now).unwrap().creating);
    }

    #[test]
    fn a_rank_of_another_job_that_creates_a_communicator_counts_while_it_lives() {
        let (job, now) = (JobName::from("j"), Moment(2_000_000_000));
        let pages = [LedgerPage::create().unwrap(), LedgerPage::create().unwrap()];
        let mut roster = Roster::default();
        roster.hello(&Identity(vec![1]), 0, rank(1, &pages[0]), Moment(0));
        let other = RankInfo { job: "other".into(), ..rank(1, &pages[1]) };
        roster.hello(&Identity(vec![2]), 0, other, Moment(0));
        assert!(!roster.ras_target(&job, Rank(1), now).unwrap().creating);
        let thread = &pages[1].ledger().threads[0];
        assert!(thread.claim(42));
        thread.enter(Call::CommunicatorInit, Moment(1));
        let target = roster.ras_target(&job, Rank(1), now).unwrap();
        assert_eq!((target.pids, target.creating), (vec![Pid(id())], true));
        roster.goodbye(&Identity(vec![2]), now);
        assert!(!roster.ras_target(&job, Rank(1), now).unwrap().creating, "it has ended");
    }
}
