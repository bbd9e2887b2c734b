//! What the roster reports: digests, snapshots for new viewers, details, ends, and ranks that wait for the
//! CPU.

use std::{cmp::Reverse, collections::BTreeMap};

use xpu_wire::{
    frame::{
        Body, DeviceReading, GpuLoad, GpuProcess, HostCpu, HostDigest, HostNeighbours, HostWork, JobSnapshot,
        JobWhatIf, NcclReport, RankDetail, RankDigest, RankExit, RankNccl, RankNeighbours, RankSnapshot,
    },
    id::{DeviceUuid, JobName, Pid, Rank},
    process,
    unit::Moment,
};

use super::{Place, Roster};
use crate::{address::Identity, cpu::CpuReading, load::Loaded, worker::Worker};

impl Roster {
    /// Keeps a rank's end for later viewers.
    pub(crate) fn keep_exit(&mut self, exit: &RankExit) {
        let place = Place { job: exit.job.clone(), rank: exit.rank };
        if let Some(worker) = self.places.get_mut(&place).filter(|worker| worker.info.pid == exit.pid) {
            worker.exit = Some(Box::new(exit.clone()));
        }
    }

    /// The ends of failed ranks.
    pub(crate) fn exits(&self) -> Vec<RankExit> {
        self.places.values().filter_map(|worker| worker.exit.as_deref().cloned()).collect()
    }

    /// Keeps what stragglers have cost a job for later viewers, with its rank 0: a new run begins without
    /// it. `false` if rank 0 is not here.
    pub(crate) fn keep_what_if(&mut self, of: &JobWhatIf) -> bool {
        let mut first = self.places.iter_mut().filter(|(place, _)| place.job == of.job);
        let Some((_, worker)) = first.find(|(place, _)| place.rank.process() == Rank(0)) else {
            return false;
        };
        worker.what_if = Some(Box::new(of.clone()));
        true
    }

    pub(crate) fn what_ifs(&self) -> Vec<JobWhatIf> {
        self.places.values().filter_map(|worker| worker.what_if.as_deref().cloned()).collect()
    }

    /// Reads the GPU health of all living ranks.
    pub(crate) fn take_devices(&mut self, mut read: impl FnMut(DeviceUuid) -> Option<DeviceReading>) {
        for worker in self.places.values_mut().filter(|worker| worker.is_there()) {
            let reading = worker.device_uuid().and_then(&mut read);
            worker.set_device(reading);
        }
    }

    /// The living ranks, with what their GPUs move and compute. A process with several GPUs appears once,
    /// with its first GPU.
    pub(crate) fn loaded(&self, gpu: impl Fn(DeviceUuid) -> Option<GpuLoad>) -> impl Iterator<Item = Loaded> {
        let living = self.places.iter().filter(|(_, worker)| worker.is_there() && !worker.is_beside());
        living.map(move |(place, worker)| Loaded {
            job: place.job.clone(),
            rank: place.rank,
            pid: worker.info.pid,
            gpu: worker.device_uuid().and_then(&gpu),
        })
    }

    /// Ranks whose GPUs other processes use, by job. A process that a rank has started is a part of it.
    pub(crate) fn neighbours(&self, used: impl Fn(DeviceUuid) -> Vec<GpuProcess>) -> Vec<Body> {
        let mut found: BTreeMap<&JobName, Vec<RankNeighbours>> = BTreeMap::new();
        let living = || self.places.iter().filter(|(_, worker)| worker.is_there());
        for (place, worker) in living().filter(|(_, worker)| !worker.is_beside()) {
            let mut processes = worker.device_uuid().map(&used).unwrap_or_default();
            processes.retain(|process| {
                let is_own = living().any(|(other, worker)| {
                    other.job == place.job && process::is_of(process.pid, worker.info.pid)
                });
                process.is_notable() && !is_own
            });
            processes.sort_by_key(|process| Reverse(process.busy));
            for process in &mut processes {
                process.name = process::name(process.pid);
            }
            if !processes.is_empty() {
                let neighbours = RankNeighbours { rank: place.rank, pid: worker.info.pid, processes };
                found.entry(&place.job).or_default().push(neighbours);
            }
        }
        let body = |(job, ranks): (&JobName, _)| Body::Neighbours(HostNeighbours { job: job.clone(), ranks });
        found.into_iter().map(body).collect()
    }

    /// By job: processes that wait for the CPU, and processes that use it and make no progress.
    pub(crate) fn cpu(
        &self,
        now: Moment,
        mut read: impl FnMut(Rank, Pid) -> Option<CpuReading>,
    ) -> Vec<Body> {
        let (mut waits, mut works) = (BTreeMap::new(), BTreeMap::new());
        let living = self.places.iter().filter(|(_, worker)| worker.is_there() && !worker.is_beside());
        for (place, worker) in living {
            let Some(CpuReading { wait, is_busy }) = read(place.rank, worker.info.pid) else { continue };
            if wait.is_notable() {
                waits.entry(&place.job).or_insert_with(Vec::new).push(wait);
            }
            if is_busy && worker.is_absent(now) {
                works.entry(&place.job).or_insert_with(Vec::new).push((place.rank, worker.info.pid));
            }
        }
        let waits = waits.into_iter().map(|(job, ranks)| Body::Cpu(HostCpu { job: job.clone(), ranks }));
        let works = works.into_iter().map(|(job, ranks)| Body::Work(HostWork { job: job.clone(), ranks }));
        waits.chain(works).collect()
    }

    /// The last digest of a rank.
    pub(crate) fn digest_of(&self, job: &JobName, rank: Rank) -> Option<RankDigest> {
        Some(self.places.get(&Place { job: job.clone(), rank })?.said())
    }

    /// One digest for each job with news.
    pub(crate) fn digests(&mut self, now: Moment) -> Vec<HostDigest> {
        let mut digests: Vec<HostDigest> = Vec::new();
        for (place, worker) in &mut self.places {
            let Some(digest) = worker.next_digest(self.peaks, now).cloned() else { continue };
            if let Some(last) = digests.last_mut().filter(|last| last.job == place.job) {
                last.ranks.push(digest);
            } else {
                digests.push(HostDigest { job: place.job.clone(), ranks: vec![digest], turned_away: 0 });
            }
        }
        for digest in &mut digests {
            digest.turned_away = self.turned_away(&digest.job);
        }
        digests
    }

    pub(crate) fn snapshot(&self) -> Vec<JobSnapshot> {
        let mut jobs: Vec<JobSnapshot> = Vec::new();
        for (place, worker) in &self.places {
            let rank = RankSnapshot {
                info: worker.info.clone(),
                earlier: worker.earlier(),
                advance: worker.advance().clone(),
                digest: worker.said(),
            };
            if let Some(last) = jobs.last_mut().filter(|last| last.job == place.job) {
                last.ranks.push(rank);
            } else {
                let turned_away = self.turned_away(&place.job);
                jobs.push(JobSnapshot { job: place.job.clone(), ranks: vec![rank], turned_away });
            }
        }
        jobs
    }

    pub(crate) fn take_nccl(&mut self, from: &Identity, number: u64, report: NcclReport) {
        if let Some(worker) = self.of(from) {
            worker.take_nccl(number, report);
        }
    }

    pub(crate) fn nccl(&self, job: &JobName, rank: Rank) -> Option<RankNccl> {
        self.places.get(&Place { job: job.clone(), rank })?.nccl()
    }

    pub(crate) fn detail(&self, job: &JobName, rank: Rank) -> Option<RankDetail> {
        self.places.get(&Place { job: job.clone(), rank }).map(Worker::detail)
    }
}
