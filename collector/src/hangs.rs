//! Saves the state of a job on disk when it hangs, or when one of its ranks fails, because by the next
//! morning the job and this collector may be gone. Also runs the user's notification program.
//!
//! This is a viewer within the process, like [`crate::follow`]: it receives what any viewer can receive. The
//! file on disk is an ordinary recording.
//!
//! ```text
//! digests, exits ─▶ Incident ──History, Stacks, Records──▶ IncidentRecording ─▶ Folder
//!                                                            └──▶ Action: the user's program
//!                        WholeJob: asks the collectors of the job's other hosts ──▲
//! ```

mod action;
mod folder;
mod incident;
mod question;
mod recording;
mod whole_job;

use std::{
    collections::BTreeMap,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver},
    },
    thread,
    time::{Duration, Instant},
};

use xpu_model::{job::Jobs, status::Status};
use xpu_net::key::Key;
use xpu_wire::{
    endpoint::BasePort,
    frame::{Body, Frame, RasReport, Request, topic},
    id::{HostName, JobName, Rank},
    unit::Moment,
};

use crate::{
    exits,
    on_hang::HangAction,
    upstream::{Feed, Upstream},
};
use action::{Action, Actions};
use folder::{Files, Folder};
use incident::{Cause, Incident};
use whole_job::{Collectors, WholeJob};

/// Interval of checks of all jobs.
const LOOK: Duration = Duration::from_secs(1);

/// Jobs that are watched.
const JOBS: usize = 256;

/// A job missing from all snapshots for this long is forgotten.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// Wait before sockets are opened again after libzmq refused.
const RETRY: Duration = Duration::from_secs(5);

/// How long the collector's end waits for data to be saved.
const END: Duration = Duration::from_secs(3);

/// Where incidents are saved, and which program notifies the user.
#[derive(Clone, Debug)]
pub struct HangsConfig {
    /// The folder of all incident folders; `None` if incidents are not saved.
    pub folder: Option<PathBuf>,
    pub host: HostName,
    /// First port, and key, of collectors on other hosts of a job.
    pub base: BasePort,
    pub key: Option<Key>,
    /// The command for jobs that set none.
    pub on_hang: Option<String>,
    /// Whether NCCL's RAS service is asked about a job that hangs.
    pub asks_ras: bool,
}

/// The handle of the thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Hangs {
    ended: Arc<AtomicBool>,
    over: Receiver<()>,
}

impl Hangs {
    pub fn start(upstream: Upstream, config: HangsConfig) -> io::Result<Self> {
        let ended = Arc::new(AtomicBool::new(false));
        let (over_tx, over) = mpsc::channel();
        let mut keeper = Keeper::new(upstream, config, Arc::clone(&ended));
        thread::Builder::new().name("hangs".to_owned()).spawn(move || {
            keeper.run();
            drop(keeper);
            let _ = over_tx.send(());
        })?;
        Ok(Self { ended, over })
    }
}

impl Drop for Hangs {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        // Waits no longer for a disk that does not answer.
        let _ = self.over.recv_timeout(END);
    }
}

struct Keeper {
    upstream: Upstream,
    folder: Option<Folder>,
    config: HangsConfig,
    ended: Arc<AtomicBool>,
    jobs: Jobs,
    /// When each followed job was last in a snapshot.
    heard: BTreeMap<JobName, Instant>,
    incidents: BTreeMap<JobName, Incident>,
    actions: Actions,
    /// Jobs whose other hosts are asked, before the program runs.
    asked: Vec<WholeJob>,
    /// Whether a failed write was logged.
    has_complained: bool,
}

impl Keeper {
    fn new(upstream: Upstream, config: HangsConfig, ended: Arc<AtomicBool>) -> Self {
        Self {
            upstream,
            folder: config.folder.clone().map(Folder::new),
            config,
            ended,
            jobs: Jobs::default(),
            heard: BTreeMap::new(),
            incidents: BTreeMap::new(),
            actions: Actions::default(),
            asked: Vec::new(),
            has_complained: false,
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    fn run(&mut self) {
        while !self.has_ended() {
            if let Err(error) = self.follow() {
                tracing::error!("hangs are not kept on disk: libzmq: {error}; trying again in {RETRY:?}");
                let retry = Instant::now() + RETRY;
                while Instant::now() < retry && !self.has_ended() {
                    thread::sleep(LOOK / 10);
                }
            }
        }
        for name in self.incidents.keys().cloned().collect::<Vec<_>>() {
            if self.incidents[&name].is_lost_otherwise() {
                self.write(&name, Instant::now());
            }
        }
    }

    /// Receives until the collector ends.
    fn follow(&mut self) -> zmq::Result<()> {
        let mut feed = self.upstream.open(b"hangs")?;
        self.heard.clear();
        let mut looked: Option<Instant> = None;
        while !self.has_ended() {
            feed.wait(LOOK / 4)?;
            for received in feed.frames() {
                let (_, frame) = received?;
                self.take(&frame, &feed)?;
            }
            self.take_answers();
            self.actions.turn(Instant::now());
            if looked.is_none_or(|looked| looked.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                self.look(&feed)?;
                let is_busy = self.actions.is_busy()
                    || !self.asked.is_empty()
                    || self.incidents.values().any(|one| !one.is_settled());
                self.upstream.held.store(is_busy, Relaxed);
            }
        }
        Ok(())
    }

    fn take(&mut self, frame: &Frame, feed: &Feed) -> zmq::Result<()> {
        if let Body::Snapshot(snapshot) = &frame.body {
            for job in &snapshot.jobs {
                self.subscribe(&job.job, feed)?;
            }
        }
        if let Body::Stacks(stacks) = &frame.body
            && stacks.threads.is_empty()
            && self.has_stacks_of(&stacks.job, stacks.rank)
        {
            // The earlier stacks stay.
            let why = stacks.why.join("; ");
            if self.incidents.get(&stacks.job).is_some_and(Incident::is_held) {
                tracing::warn!("{}: the kernels of rank {} are not named: {why}", stacks.job, stacks.rank);
            }
            return Ok(());
        }
        if let Body::Ras(report) = &frame.body {
            self.take_ras(report);
        }
        let (now, instant) = (Moment::now(), Instant::now());
        for incident in self.incidents.values_mut() {
            if incident.recording.take(frame, now) {
                incident.note_data(instant);
            }
        }
        if !matches!(frame.body, Body::History(_)) {
            self.jobs.fold(frame);
        }
        Ok(())
    }

    fn has_stacks_of(&self, name: &JobName, rank: Rank) -> bool {
        let known = self.jobs.get(name).and_then(|job| job.stacks().find(|stacks| stacks.rank == rank));
        known.is_some_and(|stacks| !stacks.threads.is_empty())
    }

    /// Takes RAS's answer about a job that hangs. Ignores answers after the ranks were ended to name their
    /// kernels.
    fn take_ras(&mut self, report: &RasReport) {
        let raw = self.upstream.ras.take(&report.job);
        let Some(incident) = self.incidents.get_mut(&report.job).filter(|incident| !incident.is_held())
        else {
            return;
        };
        match &report.job {
            job if report.is_answered() => tracing::info!("{job}: RAS at {} answers", report.address),
            job => tracing::info!("{job}: RAS does not answer: {}", report.why),
        }
        incident.ras = raw.or_else(|| incident.ras.take());
    }

    /// Subscribes to a job's frames.
    fn subscribe(&mut self, name: &JobName, feed: &Feed) -> zmq::Result<()> {
        if self.heard.len() >= JOBS && !self.heard.contains_key(name) {
            return Ok(());
        }
        if self.heard.insert(name.clone(), Instant::now()).is_none() {
            for topic in [topic::overview(name), topic::events(name)] {
                feed.subscribe(&topic)?;
            }
        }
        Ok(())
    }

    /// Checks every job, and does what is due.
    fn look(&mut self, feed: &Feed) -> zmq::Result<()> {
        let (now, instant) = (Moment::now(), Instant::now());
        let gone = self.heard.iter().filter(|(_, heard)| heard.elapsed() >= FORGOTTEN);
        let gone: Vec<_> = gone.map(|(name, _)| name.clone()).collect();
        for name in gone {
            for topic in [topic::overview(&name), topic::events(&name)] {
                feed.unsubscribe(&topic)?;
            }
            self.heard.remove(&name);
        }
        let Self { jobs, heard, .. } = self;
        jobs.forget(|job, _| !heard.contains_key(job));
        let is_over = |name: &JobName, one: &mut Incident| {
            self.jobs.get(name).is_none_or(|job| one.is_over(job, instant))
        };
        let over: Vec<_> = self.incidents.extract_if(.., is_over).collect();
        for (name, incident) in over {
            // Its files may have grown since it was first written.
            self.prune(&name, incident.place.as_deref());
        }
        for name in self.heard.keys().cloned().collect::<Vec<_>>() {
            self.look_at(&name, now, instant, feed);
        }
        Ok(())
    }

    fn look_at(&mut self, name: &JobName, now: Moment, instant: Instant, feed: &Feed) {
        let Some(job) = self.jobs.get(name) else { return };
        let cause = incident::cause(job, now);
        if let Some(cause) = cause
            && !self.incidents.contains_key(name)
        {
            self.incidents.insert(name.clone(), Incident::new(job, cause, now, instant));
        }
        let Some(incident) = self.incidents.get_mut(name) else { return };
        if incident.look(cause, instant) {
            incident.recording.take_known(job);
            for one in question::all(job, incident.cause, self.config.asks_ras) {
                feed.ask(one);
            }
        }
        if incident.is_to_be_written(instant) {
            self.write(name, instant);
        }
        let (Some(job), Some(incident)) = (self.jobs.get(name), self.incidents.get_mut(name)) else { return };
        // Ranks that are ended now would be missing from the answers of other hosts.
        let is_asked = self.asked.iter().any(|asked| asked.job == *name);
        let for_kernels =
            incident.is_for_kernels(instant) && !is_asked && self.upstream.hang_actions.names_kernels(name);
        if for_kernels {
            tracing::warn!("{name}: names the kernels on its GPUs, which ends its ranks");
            incident.hold(Status::of(&self.jobs, job, now), now);
            feed.ask(Request::GpuStacks { job: name.clone(), ranks: Vec::new() });
        }
        if incident.is_to_be_reported(job, instant) {
            self.run_program(name, now);
        }
    }

    fn write(&mut self, name: &JobName, instant: Instant) {
        let (Some(job), Some(incident)) = (self.jobs.get(name), self.incidents.get_mut(name)) else { return };
        incident.was_written(instant);
        let Some(folder) = &self.folder else { return };
        let place = incident.place.clone();
        let place = place.unwrap_or_else(|| folder.place(name, incident.found, &self.config.host));
        let status = incident.status(Status::of(&self.jobs, job, Moment::now()));
        let written = serde_json::to_vec_pretty(&status).map_err(io::Error::from).and_then(|status| {
            let recording = incident.recording.recording(&self.config.host, incident.found)?;
            let ras = incident.ras.as_deref();
            folder.write(&place, Files { recording: &recording, status: &status, ras })
        });
        match written {
            Ok(()) => {
                self.has_complained = false;
                if incident.place.is_none() {
                    tracing::warn!("{name}: incident folder: {}", place.display());
                }
                // Not at each write, because many hosts may share the home.
                let is_first = incident.place.replace(place.clone()).is_none();
                if is_first {
                    self.prune(name, Some(&place));
                }
            }
            Err(error) if !self.has_complained => {
                self.has_complained = true;
                tracing::warn!("{name}: cannot write the incident folder {}: {error}", place.display());
            }
            Err(_) => {}
        }
    }

    /// Removes old folders. `place`: this job's incident, which stays.
    fn prune(&self, name: &JobName, place: Option<&Path>) {
        let Some((folder, place)) = self.folder.as_ref().zip(place.filter(|place| place.is_dir())) else {
            return;
        };
        if let Err(error) = folder.prune(name, place) {
            tracing::warn!("old incident folders are not removed: {}: {error}", folder.path().display());
        }
    }

    /// Runs the user's program, if that is this host's task.
    fn run_program(&mut self, name: &JobName, now: Moment) {
        let (Some(job), Some(incident)) = (self.jobs.get(name), self.incidents.get(name)) else { return };
        let usual = || self.config.on_hang.as_deref().map(HangAction::usual);
        let Some(wish) = self.upstream.hang_actions.of(name).or_else(usual) else { return };
        // Every host detects a hang, so the host of rank 0 runs the program. A rank's end is detected on its
        // own host.
        let is_its_part = incident.cause == Cause::End || job.of_process(Rank(0)).is_some();
        let is_first = || self.folder.as_ref().is_none_or(|folder| folder.claim(name, incident.since));
        if !is_its_part {
            return;
        }
        if !is_first() {
            tracing::info!(
                "{name}: on-hang skipped: another host of the job ran it, or this host ran it within the last minute"
            );
            return;
        }
        let (host, place) = (&self.config.host, incident.place.as_deref());
        let action = |document| Action::new(&wish, name, incident.cause, document, place);
        if incident.cause == Cause::End {
            let document = incident::first_end(job, now).map(|exit| exits::report(exit, host));
            self.actions.extend(document.and_then(action));
            return;
        }
        let status = Status::of(&self.jobs, job, now);
        let ranks: Vec<_> = status.ranks.iter().map(|rank| rank.rank).collect();
        let Some(action) = action(whole_job::alone(status, host)) else { return };
        match self.upstream.hang_actions.hosts(name).filter(|_| !job.is_whole()) {
            Some(hosts) => {
                let (base, key) = (self.config.base, self.config.key.clone());
                self.asked.push(WholeJob::ask(name, ranks, Collectors { hosts, base, key }, action));
            }
            None => self.actions.take(action),
        }
    }

    /// Runs the programs of jobs whose other hosts have answered.
    fn take_answers(&mut self) {
        for mut asked in std::mem::take(&mut self.asked) {
            match asked.action(Instant::now()) {
                Some(action) => self.actions.take(action),
                None => self.asked.push(asked),
            }
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // However the thread ended, the collector no longer waits for it.
        self.upstream.held.store(false, Relaxed);
    }
}
