//! The poll loop: passes messages from the sockets to the roster, and its effects to the sockets.

mod publish;
mod requests;
mod workers;

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use xpu_model::expected;
use xpu_wire::{frame::Body, gpu_cores, unit::Moment};
use zmq::{DONTWAIT, POLLIN, PollItem};

use crate::{
    captures::Captures,
    counting::Counting,
    cpu::Cpus,
    device::Devices,
    exits::Exits,
    functions::Functions,
    history::Past,
    input_errors::InputErrors,
    kineto::Kineto,
    listen::{Config, OpenError, Sockets, ViewerSockets},
    load::Loads,
    memory::Memory,
    ras::Ras,
    roster::Roster,
    runs::Runs,
    sampler::Sampler,
    stacks::{Samplers, Stacks},
    subscription::Subscriptions,
    upstream::Upstream,
};

/// Interval of every job's digest.
const DIGEST: Duration = Duration::from_secs(1);

/// Number of digests per report of how the ranks' threads spend their time.
pub(crate) const TIMES_EVERY: u32 = 5;

/// Interval of process checks; also the longest wait before a signal is noticed.
const CHECK: Duration = Duration::from_millis(250);

/// Messages taken from one socket before the others have their turn.
const TURN: usize = 256;

/// A collector with its sockets bound.
pub struct Collector {
    config: Config,
    sockets: Sockets,
    started: Moment,
    roster: Roster,
    counting: Counting,
    subscriptions: Subscriptions,
    stacks: Stacks,
    samplers: Samplers,
    exits: Exits,
    captures: Captures,
    functions: Functions,
    devices: Devices,
    cpu: Cpus,
    loads: Loads,
    past: Past,
    runs: Runs,
    sampler: Sampler,
    kineto: Kineto,
    ras: Ras,
    complaints: InputErrors,
    /// When a rank last lived, a request last arrived, or an announced process was last found.
    busy: Moment,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Collector {
    pub fn open(config: Config, now: Moment) -> Result<Self, OpenError> {
        let (sockets, kineto) = Sockets::bind(&config, || {
            Kineto::new(config.kineto.clone(), &config.runtime.kineto(config.base), now)
        })?;
        // Pipes stay: they take no space, and one of a process in another container looks like that of an ended one.
        gpu_cores::remove_old(&config.runtime.gpu_cores(), &[gpu_cores::FILE], SystemTime::now());
        Ok(Self {
            sockets,
            kineto,
            // Only one collector serves, so only one writes the file.
            past: Past::open(&config.runtime.history(config.base), now),
            runs: Runs::new(config.runs.clone(), config.host.clone()),
            roster: Roster::new(config.peaks),
            stacks: Stacks::new(config.reader.clone()),
            sampler: Sampler::new(config.reader.clone(), config.samples),
            samplers: Samplers::new(config.reader.clone()),
            exits: Exits::new(config.reader.clone()),
            config,
            started: now,
            captures: Captures::default(),
            functions: Functions::default(),
            ras: Ras::default(),
            counting: Counting::default(),
            subscriptions: Subscriptions::default(),
            devices: Devices::default(),
            cpu: Cpus::default(),
            loads: Loads::default(),
            complaints: InputErrors::default(),
            busy: now,
        })
    }

    /// The collector's addresses within this process.
    pub fn upstream(&self) -> Upstream {
        self.sockets.viewers.upstream.clone()
    }

    /// Serves until stopped, or until idle for the configured time.
    pub fn serve(&mut self, stop: &AtomicBool) -> zmq::Result<()> {
        let (mut digest_at, mut check_at, mut memory) = (Moment::now(), Moment::now(), Memory::default());
        let mut digests = 0_u32;
        while !stop.load(Relaxed) {
            self.wait(digest_at.min(check_at).since(Moment::now()))?;
            let now = Moment::now();
            self.take_subscriptions()?;
            self.take_workers(now)?;
            self.take_requests(now)?;
            self.send_stacks(now);
            self.send_samples(now);
            self.send_functions(now);
            self.send_ras(now);
            let answers = self.kineto.turn(&self.roster, now);
            self.send_all(answers, now);
            if now >= check_at {
                check_at = now.after(CHECK);
                let effects = self.roster.check(now);
                self.carry_out(effects, now);
                self.publish_exits(now);
                let answers = self.kineto.check(&self.roster, now);
                self.send_all(answers, now);
                memory.tend(now);
                let stalled = self.roster.stalled(now);
                for record in self.roster.records_to_publish(&stalled, now) {
                    self.publish(Body::Record(record), now);
                }
                for target in stalled {
                    self.stacks.want(target, None);
                }
            }
            if now >= digest_at {
                digest_at = next(digest_at, now);
                self.roster.take_devices(|uuid| self.devices.reading(uuid, now));
                self.devices.forget(now);
                self.past.tend(now);
                for body in self.roster.cpu(now, |rank, pid| self.cpu.read(rank, pid, now)) {
                    self.publish(body, now);
                }
                self.cpu.forget(now);
                let loaded = self.roster.loaded(|uuid| self.devices.load(uuid, now));
                for load in self.loads.read(loaded, now) {
                    self.publish(Body::Load(load), now);
                }
                for body in self.roster.neighbours(|uuid| self.devices.processes(uuid, now)) {
                    self.publish(body, now);
                }
                for digest in self.roster.digests(now) {
                    self.publish(Body::Digest(digest), now);
                }
                self.sampler.turn(&mut self.roster, now);
                digests = digests.wrapping_add(1);
                if digests.is_multiple_of(TIMES_EVERY) {
                    for times in self.roster.times(now) {
                        self.publish(Body::Times(times), now);
                    }
                }
                self.runs.tend(now, |job| self.roster.gpu(job));
                if self.is_idle(now) {
                    tracing::info!("no ranks and no requests: exiting");
                    return Ok(());
                }
            }
            // If the clock was set back, digests continue at once.
            digest_at = digest_at.min(now.after(DIGEST));
            check_at = check_at.min(now.after(CHECK));
        }
        Ok(())
    }

    fn wait(&self, longest: Duration) -> zmq::Result<()> {
        let Sockets { workers, viewers: ViewerSockets { data, control, .. }, .. } = &self.sockets;
        let mut items: Vec<_> =
            [workers, data, control].iter().map(|socket| socket.as_poll_item(POLLIN)).collect();
        let others = self.stacks.descriptors().chain(self.samplers.descriptors());
        let others = others.chain(self.kineto.descriptors());
        items.extend(others.map(|descriptor| PollItem::from_fd(descriptor, POLLIN)));
        // Rounded up: a wait of less than a millisecond would spin.
        let milliseconds = i64::try_from(longest.as_micros().div_ceil(1000)).unwrap_or(i64::MAX);
        match zmq::poll(&mut items, milliseconds) {
            Ok(_) | Err(zmq::Error::EINTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn is_idle(&mut self, now: Moment) -> bool {
        let is_held = self.sockets.viewers.upstream.held.load(Relaxed);
        if self.roster.living() > 0 || self.exits.is_busy() || is_held || self.busy > now {
            self.busy = now;
        }
        let Some(limit) = self.config.idle_exit.filter(|&limit| now.since(self.busy) >= limit) else {
            return false;
        };
        // Checked only if everything else allows the exit. A job that is still loading has not sent anything.
        if !expected::living(&self.config.runtime, self.config.base).is_empty() {
            self.busy = now;
        }
        now.since(self.busy) >= limit
    }

    fn take_subscriptions(&mut self) -> zmq::Result<()> {
        for _ in 0..TURN {
            match self.sockets.viewers.data.recv_bytes(DONTWAIT) {
                Ok(message) => self.subscriptions.take(&message),
                Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// When the digest after the one due at `due` is due: on the second, unless digests were missed.
fn next(due: Moment, now: Moment) -> Moment {
    let next = due.after(DIGEST);
    if next > now { next } else { now.after(DIGEST) }
}
