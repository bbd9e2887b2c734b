//! Knows the ranks on this host by their place in a job, and the sender of each message.
//!
//! The roster has no socket and reads no clock. It returns what to send as [`Effect`]s.

mod gpus;
mod kineto;
mod ras;
mod records;
mod reports;
mod stall;
mod times;

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use xpu_model::peak::Peaks;
use xpu_wire::{
    frame::{Body, Command, Event, HostDigest, Life, RankInfo, RankRecord, Summary},
    id::{JobName, Rank},
    unit::Moment,
};

pub(crate) use kineto::{LivingProcess, Subject};
pub(crate) use stall::FoundStacks;
pub(crate) use times::Idling;

use crate::{
    address::Identity,
    exits::{Departure, KillCounts},
    worker::Worker,
};

/// Largest number of ranks; a host has tens. Beyond it, ended ranks are dropped first, and then new ranks are
/// rejected.
const PLACES: usize = 4096;

/// How long an ended rank stays visible.
const REMEMBERED: Duration = Duration::from_mins(10);

/// An unknown sender is asked for its identity at most once in this time. Otherwise a rejected sender would
/// be asked after each of its messages.
const ASK_AGAIN: Duration = Duration::from_secs(5);

/// A rejected sender that is silent for this time counts as gone.
const REJECTED_GONE_AFTER: Duration = Duration::from_secs(10);

/// Largest number of unknown senders.
const UNKNOWN_SENDERS: usize = 1024;

/// Longest command line and version that are forwarded.
const LONGEST_TEXT: usize = 256;

/// A rank's place: at most one process holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Place {
    job: JobName,
    rank: Rank,
}

/// The consequences of a message or of time.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Effect {
    Command(Identity, Command),
    Publish(Box<Body>),
    /// A rank has new data for its subscribers.
    Fresh(JobName, Rank),
    /// A rank failed.
    Departed(Box<Departure>),
    /// The sender made an error.
    Complain(&'static str, String),
}

#[derive(Debug, Default)]
pub(crate) struct Roster {
    /// GPU peaks that override the data sheets.
    peaks: Peaks,
    places: BTreeMap<Place, Worker>,
    identities: HashMap<Identity, Place>,
    strangers: HashMap<Identity, Moment>,
    /// Senders that claim a taken place: the job, and when they last sent. Their number is bounded like that
    /// of unknown senders.
    turned_away: HashMap<Identity, (JobName, Moment)>,
}

impl Roster {
    pub(crate) fn new(peaks: Peaks) -> Self {
        Self { peaks, ..Self::default() }
    }

    pub(crate) fn hello(&mut self, from: &Identity, number: u64, info: RankInfo, now: Moment) -> Vec<Effect> {
        let info = trimmed(info);
        let place = Place { job: info.job.clone(), rank: info.rank };
        if let Some(holder) = self.places.get_mut(&place) {
            if holder.is_process_of(&info) {
                self.identities.remove(&holder.identity);
                self.identities.insert(from.clone(), place);
                holder.introduce(from.clone(), info, number, now);
                return life_event(holder, Life::Alive, now).into_iter().collect();
            }
            if !holder.has_left() {
                let (pid, holder) = (info.pid, holder.info.pid);
                let text = format!(
                    "process {pid} claims rank {} of job {}, which process {holder} has; give each job a name of its own with `xpu-top run --job NAME`",
                    place.rank, place.job,
                );
                // The sender counts as asked, so that its next summaries cause no question before the place
                // may be free.
                let _ = self.ask(from, now);
                self.reject(from, place.job, now);
                return vec![Effect::Complain("a place that is taken", text)];
            }
        }
        // The end of the previous process must be reported before a new process takes its place.
        let mut effects = self.departures(now);
        self.leave_other_place(from, &place);
        self.begin_anew(&place.job);
        if !self.make_room(&place) {
            let text =
                format!("{PLACES} ranks run here already; rank {} of {} is not shown", place.rank, place.job);
            effects.push(Effect::Complain("no room", text));
            return effects;
        }
        self.strangers.remove(from);
        self.turned_away.remove(from);
        let joined = publish(Body::Event(Event::Joined(info.clone())));
        if let Some(old) = self.places.insert(place.clone(), Worker::new(from.clone(), info, number, now)) {
            self.identities.remove(&old.identity);
        }
        self.identities.insert(from.clone(), place);
        effects.push(joined);
        effects
    }

    /// A process that claims another rank now gives up its former place.
    fn leave_other_place(&mut self, from: &Identity, place: &Place) {
        if let Some(old) = self.identities.get(from).filter(|&old| old != place).cloned() {
            self.identities.remove(from);
            if let Some(worker) = self.places.remove(&old) {
                self.forget_beside(&worker.info, |_| true);
            }
        }
    }

    /// Forgets the ranks of a job's last run if none of them lives. The job starts again, perhaps with fewer
    /// ranks.
    fn begin_anew(&mut self, job: &JobName) {
        let of_job = || self.places.iter().filter(|(place, _)| place.job == *job);
        if of_job().all(|(_, worker)| !worker.is_there()) {
            let old: Vec<_> = of_job().map(|(place, _)| place.clone()).collect();
            for place in old {
                self.forget(&place);
            }
        }
    }

    fn make_room(&mut self, place: &Place) -> bool {
        if self.places.len() < PLACES || self.places.contains_key(place) {
            return true;
        }
        let ended = self.places.iter().filter(|(_, worker)| !worker.is_there());
        let oldest = ended.min_by_key(|(_, worker)| worker.last_contact()).map(|(place, _)| place.clone());
        oldest.is_some_and(|oldest| self.forget(&oldest))
    }

    fn forget(&mut self, place: &Place) -> bool {
        let Some(worker) = self.places.remove(place) else { return false };
        self.identities.remove(&worker.identity);
        true
    }

    pub(crate) fn summary(
        &mut self,
        from: &Identity,
        number: u64,
        mut summary: Summary,
        now: Moment,
    ) -> Vec<Effect> {
        let Some(info) = self.of(from).map(|worker| worker.info.clone()) else {
            if let Some((_, spoke)) = self.turned_away.get_mut(from) {
                *spoke = now;
            }
            return self.ask(from, now).into_iter().collect();
        };
        let mut effects = self.split_by_gpu(&info, number, &mut summary, now);
        let Some(worker) = self.of(from) else { return effects };
        let turned_away = worker.shapes_rejected();
        let gapless = worker.summary(number, summary, now);
        effects.push(Effect::Fresh(info.job, info.rank));
        if worker.shapes_rejected() > turned_away {
            let text =
                format!("rank {} of {} uses more shapes than are kept", worker.info.rank, worker.info.job);
            effects.push(Effect::Complain("too many shapes", text));
        }
        effects.extend(life_event(worker, Life::Alive, now));
        if !gapless {
            effects.extend(self.ask(from, now));
        }
        effects
    }

    /// Takes a rank's goodbye. Publishes the last counts at once, because the collector may exit soon.
    pub(crate) fn goodbye(&mut self, from: &Identity, now: Moment) -> Vec<Effect> {
        self.turned_away.remove(from);
        let peaks = self.peaks;
        let Some(place) = self.identities.get(from) else { return Vec::new() };
        let Some(worker) = self.places.get(place) else { return Vec::new() };
        let mut places = vec![place.clone()];
        places.extend(self.places_beside(&worker.info));
        let (mut effects, mut ranks) = (Vec::new(), Vec::new());
        for place in &places {
            let Some(worker) = self.places.get_mut(place) else { continue };
            // A program that ends itself with `os._exit` may have made more calls since its last summary.
            worker.read_ledger(now);
            effects.extend(life_event(worker, Life::Ended, now));
            ranks.extend(worker.next_digest(peaks, now).cloned());
        }
        if let Some(Place { job, .. }) = places.into_iter().next().filter(|_| !ranks.is_empty()) {
            let turned_away = self.turned_away(&job);
            effects.push(publish(Body::Digest(HostDigest { job, ranks, turned_away })));
        }
        effects
    }

    fn of(&mut self, from: &Identity) -> Option<&mut Worker> {
        self.places.get_mut(self.identities.get(from)?)
    }

    /// Asks a sender to introduce itself, unless it was asked just now.
    fn ask(&mut self, from: &Identity, now: Moment) -> Option<Effect> {
        if self.strangers.get(from).is_some_and(|&asked| now.since(asked) < ASK_AGAIN) {
            return None;
        }
        if self.strangers.len() >= UNKNOWN_SENDERS {
            self.strangers.clear();
        }
        self.strangers.insert(from.clone(), now);
        Some(Effect::Command(from.clone(), Command::Introduce))
    }

    fn reject(&mut self, from: &Identity, job: JobName, now: Moment) {
        if self.turned_away.len() < UNKNOWN_SENDERS {
            self.turned_away.insert(from.clone(), (job, now));
        }
    }

    fn turned_away(&self, job: &JobName) -> u32 {
        let claims = self.turned_away.values().filter(|(claimed, _)| claimed == job).count();
        u32::try_from(claims).unwrap_or(u32::MAX)
    }

    /// Checks all ranks, and drops those that ended long ago.
    pub(crate) fn check(&mut self, now: Moment) -> Vec<Effect> {
        let mut kills = KillCounts::default();
        let changed = self.places.values_mut().filter_map(|worker| {
            worker.check(&mut kills, now)?;
            Some(publish(Body::Event(life_of(worker))))
        });
        let mut effects: Vec<_> = changed.collect();
        effects.extend(self.departures(now));
        self.turned_away.retain(|_, (_, spoke)| now.since(*spoke) < REJECTED_GONE_AFTER);
        let old: Vec<_> = self
            .places
            .iter()
            .filter(|(_, worker)| !worker.is_there() && now.since(worker.last_contact()) > REMEMBERED)
            .map(|(place, _)| place.clone())
            .collect();
        for place in old {
            self.forget(&place);
        }
        effects
    }

    /// Ranks that failed since the last check.
    fn departures(&mut self, now: Moment) -> Vec<Effect> {
        let mut effects = Vec::new();
        for worker in self.places.values_mut().filter(|worker| !worker.is_beside()) {
            let Some(departure) = worker.departs(now) else { continue };
            // The last calls are read while that is possible.
            let record = worker.record(RankRecord::share(worker.info.world_size), now);
            effects.push(publish(Body::Record(record)));
            effects.push(Effect::Departed(Box::new(departure)));
        }
        effects
    }

    /// The workers of a job that can receive messages.
    pub(crate) fn identities(&self, job: &JobName) -> Vec<Identity> {
        self.workers_named(job, &[])
    }

    /// The workers of the named ranks that can receive messages, or of all ranks here if none is named.
    pub(crate) fn workers_named(&self, job: &JobName, ranks: &[Rank]) -> Vec<Identity> {
        let named = self.processes(job).filter(|worker| worker.is_named(ranks));
        named.filter(|worker| worker.is_there()).map(|worker| worker.identity.clone()).collect()
    }

    /// The job and rank of a worker, if the roster lists it.
    pub(crate) fn place_of(&self, from: &Identity) -> Option<(&JobName, Rank)> {
        self.identities.get(from).map(|place| (&place.job, place.rank))
    }

    /// The known jobs, and the start of each one's first rank.
    pub(crate) fn jobs(&self) -> Vec<(JobName, Moment)> {
        let mut jobs: Vec<(JobName, Moment)> = Vec::new();
        for (place, worker) in &self.places {
            let started = worker.info.started;
            match jobs.last_mut().filter(|(job, _)| *job == place.job) {
                Some((_, first)) => *first = started.min(*first),
                None => jobs.push((place.job.clone(), started)),
            }
        }
        jobs
    }

    /// The GPUs of a job, as CUDA names them. Empty while unknown.
    pub(crate) fn gpu(&self, job: &JobName) -> String {
        let mut names = self.of_job(job).map(Worker::gpu);
        names.find(|name| !name.is_empty()).unwrap_or_default().to_owned()
    }

    pub(crate) fn living(&self) -> usize {
        self.places.values().filter(|worker| worker.is_there()).count()
    }
}

fn life_event(worker: &mut Worker, life: Life, now: Moment) -> Option<Effect> {
    worker.become_life(life, now)?;
    Some(publish(Body::Event(life_of(worker))))
}

fn publish(body: Body) -> Effect {
    Effect::Publish(Box::new(body))
}

fn life_of(worker: &Worker) -> Event {
    let RankInfo { job, rank, pid, .. } = worker.info.clone();
    Event::Life { job, rank, pid, life: worker.life() }
}

/// Shortens the texts of a worker's identity, and makes its job's name fit for a topic, because every viewer
/// gets them.
fn trimmed(mut info: RankInfo) -> RankInfo {
    info.job = JobName::cleaned(info.job.as_str());
    for text in [&mut info.program, &mut info.version] {
        *text = text.chars().filter(|c| !c.is_control()).take(LONGEST_TEXT).collect();
    }
    info
}

#[cfg(test)]
#[path = "roster_tests.rs"]
mod tests;
