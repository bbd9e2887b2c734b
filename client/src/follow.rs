//! Follows a job without a screen: the state from all arrivals, and whether every host and rank has reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
    time::Duration,
};

use xpu_model::{
    baseline::Runs,
    finding::{self, EndedFindings, Examiner},
    job::{Clock, Job, Jobs},
    status::{Status, UnreachableHost},
};
use xpu_recording::{Packer, Ring, SealedBlock};
use xpu_wire::{
    frame::{Body, Frame, HostDigest, JobSnapshot, Life},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use crate::arrival::{Arrival, Endpoint, Link};

/// Limits of the kept frames, in time and in bytes.
pub const LATELY: Duration = Duration::from_mins(1);
const LATELY_BYTES: usize = 32 << 20;

/// The data that arrived so far.
#[derive(Debug)]
pub struct Following {
    endpoints: BTreeSet<Endpoint>,
    named: Option<JobName>,
    jobs: Jobs,
    links: BTreeMap<Endpoint, Link>,
    /// Hosts behind relays, and their names. A relay may report a host as reachable before the host itself
    /// reports.
    behind: BTreeMap<Endpoint, Option<HostName>>,
    reported: BTreeSet<HostName>,
    /// Living ranks without a digest so far.
    awaited: BTreeSet<(JobName, Rank)>,
    /// Number of digests received per rank.
    digested: BTreeMap<(JobName, Rank), u32>,
    clock: Clock,
    /// The frames of the last minute, if enabled.
    lately: Option<(Packer, Ring)>,
    /// The findings of a job, with those that ended, if enabled.
    ended_findings: Option<Box<(JobName, EndedFindings)>>,
    /// Past runs that the job is compared with.
    runs: Option<Arc<Runs>>,
}

impl Following {
    pub fn new(endpoints: impl IntoIterator<Item = Endpoint>, named: Option<JobName>) -> Self {
        Self {
            endpoints: endpoints.into_iter().collect(),
            named,
            jobs: Jobs::default(),
            links: BTreeMap::new(),
            behind: BTreeMap::new(),
            reported: BTreeSet::new(),
            awaited: BTreeSet::new(),
            digested: BTreeMap::new(),
            clock: Clock::default(),
            lately: None,
            ended_findings: None,
            runs: None,
        }
    }

    /// Compares the job with past runs from now on.
    pub fn compare_with(&mut self, runs: Option<Arc<Runs>>) {
        self.runs = runs;
    }

    /// Records findings and when they end, from now on.
    pub fn note_what_goes(&mut self) {
        self.ended_findings = Some(Box::default());
    }

    /// Evaluates findings, if they are recorded and an evaluation is due.
    fn look(&mut self) {
        let now = self.jobs.clock();
        // With thousands of ranks, it takes time to determine the job, so not for every frame.
        let Some(mut ended_findings) = self.ended_findings.take_if(|ended| ended.1.is_due(now)) else {
            return;
        };
        if let Some(job) = self.job() {
            if ended_findings.0 != *job.name() {
                *ended_findings = (job.name().clone(), EndedFindings::default());
            }
            ended_findings.1.look(job, now);
        }
        self.ended_findings = Some(ended_findings);
    }

    /// From now on, keeps the frames of the last minute as received. They follow the blocks that another
    /// follower received `before`, so that the time before a finding is included.
    pub fn remember(&mut self, before: Vec<SealedBlock>) {
        let mut ring = Ring::new(LATELY_BYTES, LATELY);
        for block in before {
            ring.push(block);
        }
        self.lately = Some((Packer::default(), ring));
    }

    /// Returns the kept minute, and stops keeping frames.
    pub fn recall(&mut self) -> io::Result<Vec<SealedBlock>> {
        let Some((mut packer, mut ring)) = self.lately.take() else { return Ok(Vec::new()) };
        packer.rest()?.into_iter().for_each(|block| ring.push(block));
        Ok(ring.blocks().cloned().collect())
    }

    fn keep(&mut self, frame: &Frame) {
        let Some((packer, ring)) = &mut self.lately else { return };
        let now = Moment::now();
        let blocks = packer.due(now).and_then(|mut due| {
            due.extend(packer.push(now, frame)?);
            Ok(due)
        });
        // Findings do not need a frame that is too large to keep.
        blocks.into_iter().flatten().for_each(|block| ring.push(block));
    }

    pub fn take(&mut self, arrival: Arrival) {
        self.take_at(Moment::now(), arrival);
    }

    /// Takes an arrival at that moment, by the receiver's clock.
    pub fn take_at(&mut self, at: Moment, arrival: Arrival) {
        match arrival {
            Arrival::Frame(frame) => {
                self.keep(&frame);
                match &frame.body {
                    Body::Relay(relay) => {
                        self.reported.insert(frame.host.clone());
                        for host in &relay.hosts {
                            self.endpoints.insert(host.endpoint.clone());
                            self.behind.insert(host.endpoint.clone(), host.called.clone());
                        }
                    }
                    Body::Snapshot(snapshot) => {
                        self.reported.insert(frame.host.clone());
                        let wanted =
                            |job: &&JobSnapshot| self.named.as_ref().is_none_or(|name| *name == job.job);
                        for job in snapshot.jobs.iter().filter(wanted) {
                            let living = job.ranks.iter().filter(|rank| rank.digest.life == Life::Alive);
                            let places = living.map(|rank| (job.job.clone(), rank.info.rank));
                            self.awaited.extend(places.filter(|place| !self.digested.contains_key(place)));
                        }
                    }
                    Body::Digest(digest) => self.count(digest),
                    Body::History(history) => {
                        for frame in history.frames.frames() {
                            if let Body::Digest(digest) = &frame.body {
                                self.count(digest);
                            }
                            self.look();
                            self.jobs.fold(&frame);
                        }
                    }
                    _ => {}
                }
                if !matches!(frame.body, Body::History(_)) {
                    self.look();
                    self.jobs.fold(&frame);
                }
                self.clock.update(&self.jobs, at);
            }
            Arrival::Link(endpoint, link) => {
                self.endpoints.insert(endpoint.clone());
                self.links.insert(endpoint, link);
            }
            Arrival::Name(..) => {}
        }
    }

    fn count(&mut self, digest: &HostDigest) {
        for rank in &digest.ranks {
            let place = (digest.job.clone(), rank.rank);
            self.awaited.remove(&place);
            *self.digested.entry(place).or_default() += 1;
        }
    }

    /// Whether every host has answered, or is known to be unreachable.
    pub fn has_answered(&self) -> bool {
        self.endpoints.iter().all(|endpoint| match self.links.get(endpoint) {
            Some(Link::Up) => self.has_reported(endpoint),
            Some(Link::Down { .. }) => true,
            Some(Link::Connecting) | None => false,
        })
    }

    /// Whether a reachable host has answered.
    fn has_reported(&self, endpoint: &Endpoint) -> bool {
        let called = self.behind.get(endpoint);
        called.is_none_or(|called| called.as_ref().is_some_and(|called| self.reported.contains(called)))
    }

    /// Whether every host has answered, and every living rank has reported.
    pub fn is_complete(&self) -> bool {
        self.awaited.is_empty() && self.has_answered()
    }

    /// Whether the job's living ranks were watched long enough to detect stragglers.
    pub fn is_watched(&self) -> bool {
        let Some(job) = self.job() else { return false };
        let living = job.ranks().filter(|(_, view)| view.life() == Life::Alive);
        living
            .map(|(rank, _)| self.digested.get(&(job.name().clone(), rank)).copied().unwrap_or(0))
            .all(|digests| digests >= finding::WATCHED)
    }

    /// Whether every host is up, every living rank has reported, and there is a job.
    pub fn is_whole(&self) -> bool {
        self.is_complete() && self.down().next().is_none() && self.job().is_some()
    }

    /// Unreachable hosts, and why.
    pub fn down(&self) -> impl Iterator<Item = (&Endpoint, &str)> {
        self.links.iter().filter_map(|(endpoint, link)| match link {
            Link::Down { why } => Some((endpoint, why.as_str())),
            Link::Connecting | Link::Up => None,
        })
    }

    /// Hosts that have not answered so far, and why.
    pub fn unreachable(&self) -> impl Iterator<Item = UnreachableHost> {
        self.endpoints.iter().filter_map(|endpoint| {
            let why = match self.links.get(endpoint) {
                Some(Link::Up) if self.has_reported(endpoint) => return None,
                Some(Link::Down { why }) => why.clone(),
                Some(Link::Up | Link::Connecting) | None => {
                    format!("{endpoint} has not answered yet; allow more with --wait")
                }
            };
            Some(UnreachableHost { host: endpoint.to_string(), why })
        })
    }

    /// Why the job is compared with no past run, if that was requested.
    pub fn lacks_past_run(&self) -> Option<String> {
        self.runs.as_ref()?.lacks(self.job()?)
    }

    /// The named job, or the first in the list.
    pub fn job(&self) -> Option<&Job> {
        match &self.named {
            Some(name) => self.jobs.get(name),
            None => self.jobs.foremost(),
        }
    }

    /// All jobs that were seen.
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// Whether the details of a rank of the job have arrived.
    pub fn has_detail(&self, rank: Rank) -> bool {
        self.job().and_then(|job| job.rank(rank)).is_some_and(|view| view.summary().is_some())
    }

    pub fn status(&self, now: Moment) -> Status {
        let now = self.clock.there(now);
        let mut status = match self.job() {
            Some(job) => {
                let mut examiner = Examiner::default();
                examiner.compare_with(self.runs.as_ref());
                let mut findings = examiner.examine(job, now);
                let before = self.ended_findings.as_deref().filter(|(of, _)| of == job.name());
                if let Some((_, before)) = before {
                    before.extend(&mut findings, job, now);
                }
                let mut status = Status::with(&self.jobs, job, findings, now);
                if let Some((_, before)) = before {
                    status.ended_findings = before.gone(&status.findings);
                }
                status
            }
            None => Status::of(&self.jobs, &Job::new(self.named.clone().unwrap_or_default()), now),
        };
        status.coverage.hosts_unreachable = self.unreachable().collect();
        status
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::{
        endpoint::BasePort,
        frame::{RelaySnapshot, RelayedHost},
    };

    use super::*;

    fn endpoint(host: &str) -> Endpoint {
        Endpoint { host: host.to_owned(), base: BasePort::DEFAULT, ssh: None }
    }

    #[test]
    fn a_following_is_complete_when_every_host_and_rank_has_answered() {
        let simulation = Simulation::new(1, 2, 2);
        let mut following = Following::new([endpoint("a"), endpoint("b")], None);
        assert!(!following.is_complete());
        for frame in simulation.snapshots(1) {
            following.take(Arrival::Frame(Box::new(frame)));
        }
        following.take(Arrival::Link(endpoint("a"), Link::Up));
        following.take(Arrival::Link(endpoint("b"), Link::Connecting));
        for frame in simulation.digests(2) {
            assert!(!following.is_complete());
            following.take(Arrival::Frame(Box::new(frame)));
        }
        assert!(!following.is_complete());
        following.take(Arrival::Link(endpoint("b"), Link::Down { why: "gone".to_owned() }));
        assert!(following.is_complete() && !following.is_whole());
        following.take(Arrival::Link(endpoint("b"), Link::Up));
        assert!(following.is_whole());
        assert_eq!(following.status(Moment(0)).ranks.len(), 4);
    }

    #[test]
    fn a_host_behind_a_relay_has_answered_when_it_has_reported_itself() {
        let snapshot = Simulation::new(1, 1, 2).snapshots(1).remove(0);
        let host =
            RelayedHost { endpoint: endpoint("a"), link: Link::Up, called: Some(snapshot.host.clone()) };
        let relay = RelaySnapshot {
            version: String::new(),
            started: Moment(0),
            base: BasePort::DEFAULT,
            hosts: vec![host],
        };
        let mut following = Following::new([endpoint("relay")], None);
        let frame = Frame { host: "relay".into(), body: Body::Relay(relay), ..snapshot.clone() };
        following.take(Arrival::Frame(Box::new(frame)));
        following.take(Arrival::Link(endpoint("relay"), Link::Up));
        assert!(!following.has_answered(), "it has told of a host");
        following.take(Arrival::Link(endpoint("a"), Link::Up));
        assert!(!following.has_answered(), "of which nothing was heard");
        assert_eq!(following.unreachable().count(), 1);
        following.take(Arrival::Frame(Box::new(snapshot)));
        assert!(following.has_answered());
        assert_eq!(following.unreachable().count(), 0);
    }

    #[test]
    fn a_slow_rank_is_known_after_some_seconds_of_every_living_rank() {
        let simulation = Simulation::new(1, 2, 2);
        let mut following = Following::new([], None);
        assert!(!following.is_watched(), "there is no job");
        for frame in simulation.snapshots(1) {
            following.take(Arrival::Frame(Box::new(frame)));
        }
        for second in 2..2 + u64::from(finding::WATCHED) {
            for frame in simulation.digests(second) {
                assert!(!following.is_watched());
                following.take(Arrival::Frame(Box::new(frame)));
            }
        }
        assert!(following.is_watched());
    }

    /// A script reads the document, not stderr.
    #[test]
    fn unreachable_hosts_are_in_the_document_and_not_healthy() {
        let mut following = Following::new(["a", "b", "c"].map(endpoint), None);
        for frame in Simulation::new(1, 1, 2).snapshots(1) {
            following.take(Arrival::Frame(Box::new(frame)));
        }
        following.take(Arrival::Link(endpoint("a"), Link::Up));
        following.take(Arrival::Link(endpoint("b"), Link::Down { why: "gone".to_owned() }));
        let status = following.status(Moment(0));
        let unreachable = &status.coverage.hosts_unreachable;
        assert_eq!((unreachable.len(), unreachable[0].why.as_str()), (2, "gone"));
        assert_eq!(status.exit_code(), xpu_model::status::ExitCode::NoData);
    }

    /// The client does not wait for ranks of other jobs.
    #[test]
    fn only_the_ranks_of_the_named_job_are_awaited() {
        let mut following = Following::new([], Some("gone".into()));
        following.take(Arrival::Frame(Box::new(Simulation::new(1, 1, 2).snapshots(1).remove(0))));
        assert!(following.is_complete());
        assert_eq!(following.status(Moment(0)).other_jobs, ["llama-70b".into()]);
    }

    #[test]
    fn an_unknown_job_is_a_document_without_ranks() {
        let following = Following::new([], Some("gone".into()));
        let status = following.status(Moment(0));
        assert_eq!((status.job.as_str(), status.ranks.len()), ("gone", 0));
        assert_eq!(status.exit_code(), xpu_model::status::ExitCode::NoData);
    }
}
