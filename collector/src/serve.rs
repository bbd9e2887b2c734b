//! The poll loop: from sockets to the roster and back.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::{Duration, Instant},
};

use xpu_model::expected;
use xpu_wire::{
    VERSION, codec,
    frame::{
        Body, CaptureOutcome, CaptureWindow, Command, Event, Frame, HostSnapshot, KinetoWish, RankStacks,
        Request, SampleOrder, topic,
    },
    id::{JobName, Rank},
    unit::Moment,
};
use zmq::{DONTWAIT, POLLIN, PollItem, SNDMORE};

use crate::{
    address::Address,
    captures::Captures,
    clock,
    complaint::Complaints,
    counting::Counting,
    cpu::Cpus,
    device::Devices,
    envelope::{Envelope, tell},
    exits::Exits,
    follow::Upstream,
    history::Past,
    kineto::{Kineto, Told},
    listen::{Config, Front, OpenError, Sockets},
    memory::Memory,
    ras::{self, Ras},
    roster::{Effect, Identity, Roster},
    runs::Runs,
    sampler::Sampler,
    stacks::{Answer, Samplers, Stacks, Target},
    subscription::Subscriptions,
};

/// Interval of every job's digest.
const DIGEST: Duration = Duration::from_secs(1);

/// Digests from one report of what hosts do to the next.
pub(crate) const TIMES_EVERY: u32 = 5;

/// Interval of process checks; also the longest wait before a signal is noticed.
const CHECK: Duration = Duration::from_millis(250);

/// Messages taken from one socket before the others have their turn.
const TURN: usize = 256;

/// The stream of frames that answer requests and command workers.
const CONTROL: &str = "/control";

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
    devices: Devices,
    cpu: Cpus,
    past: Past,
    runs: Runs,
    sampler: Sampler,
    kineto: Kineto,
    ras: Ras,
    complaints: Complaints,
    /// When a rank last lived, a request last came, or a process was found that may become a rank.
    busy: Moment,
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Collector").field("config", &self.config).finish_non_exhaustive()
    }
}

impl Collector {
    pub fn open(config: Config, now: Moment) -> Result<Self, OpenError> {
        Ok(Self {
            sockets: Sockets::bind(&config)?,
            // Only one collector serves, so only one writes it.
            past: Past::open(&config.runtime.history(config.base), now),
            runs: Runs::new(config.runs.clone(), config.host.clone()),
            roster: Roster::new(config.peaks),
            stacks: Stacks::new(config.reader.clone()),
            sampler: Sampler::new(config.reader.clone(), config.samples),
            samplers: Samplers::new(config.reader.clone()),
            exits: Exits::new(config.reader.clone()),
            kineto: Kineto::new(config.kineto.clone(), now),
            config,
            started: now,
            captures: Captures::default(),
            ras: Ras::default(),
            counting: Counting::default(),
            subscriptions: Subscriptions::default(),
            devices: Devices::default(),
            cpu: Cpus::default(),
            complaints: Complaints::default(),
            busy: now,
        })
    }

    /// Its addresses within this process.
    pub fn upstream(&self) -> Upstream {
        self.sockets.front.upstream.clone()
    }

    /// Serves until it is stopped, or idle for the configured time.
    pub fn serve(&mut self, stop: &AtomicBool) -> zmq::Result<()> {
        let (mut digest_at, mut check_at, mut memory) = (Moment::now(), Moment::now(), Memory::default());
        let mut digests = 0_u32;
        while !stop.load(Relaxed) {
            self.wait(digest_at.min(check_at).since(Moment::now()))?;
            let now = Moment::now();
            self.take_subscriptions()?;
            self.take_workers(now)?;
            self.take_requests(now)?;
            self.tell_stacks(now);
            self.tell_samples(now);
            self.tell_ras(now);
            let told = self.kineto.turn(&self.roster, now);
            self.tell_each(told, now);
            if now >= check_at {
                check_at = now.after(CHECK);
                let effects = self.roster.check(now);
                self.carry_out(effects, now);
                self.tell_exits(now);
                let told = self.kineto.check(&self.roster, now);
                self.tell_each(told, now);
                memory.tend(now);
                let standing = self.roster.standing(now);
                for record in self.roster.records_to_publish(&standing, now) {
                    self.publish(Body::Record(record), now);
                }
                for target in standing {
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
            // A clock that was set back must not stop the digests until it has caught up.
            digest_at = digest_at.min(now.after(DIGEST));
            check_at = check_at.min(now.after(CHECK));
        }
        Ok(())
    }

    fn wait(&self, longest: Duration) -> zmq::Result<()> {
        let Sockets { workers, front: Front { data, control, .. }, .. } = &self.sockets;
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
        let is_held = self.sockets.front.upstream.held.load(Relaxed);
        if self.roster.living() > 0 || self.exits.is_busy() || is_held || self.busy > now {
            self.busy = now;
        }
        let Some(limit) = self.config.idle_exit.filter(|&limit| now.since(self.busy) >= limit) else {
            return false;
        };
        // Checked only if all else allows the exit: a job that is loading has not sent anything yet.
        if !expected::living(&self.config.runtime, self.config.base).is_empty() {
            self.busy = now;
        }
        now.since(self.busy) >= limit
    }

    fn take_subscriptions(&mut self) -> zmq::Result<()> {
        for _ in 0..TURN {
            match self.sockets.front.data.recv_bytes(DONTWAIT) {
                Ok(message) => self.subscriptions.take(&message),
                Err(zmq::Error::EAGAIN | zmq::Error::EINTR) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_workers(&mut self, now: Moment) -> zmq::Result<()> {
        for _ in 0..TURN {
            let Some(Envelope { from: Address { to: from, .. }, payload }) =
                Envelope::receive(&self.sockets.workers)?
            else {
                break;
            };
            let effects = match codec::decode(&payload) {
                Ok(Frame { number, body, .. }) => match body {
                    Body::Hello(info) => self.roster.hello(&from, number, info, now),
                    Body::Summary(summary) => self.roster.summary(&from, number, summary, now),
                    Body::Nccl(report) => {
                        self.roster.take_nccl(&from, number, report);
                        continue;
                    }
                    Body::Goodbye => self.roster.goodbye(&from, now),
                    Body::CaptureAnswer(_) | Body::CapturePart(_) => {
                        self.pass_on(&from, body, now);
                        continue;
                    }
                    other => {
                        self.complaints.raise("a worker may not send this", &other.kind(), now);
                        continue;
                    }
                },
                Err(error) => {
                    self.complaints.raise("a worker's frame", &error, now);
                    continue;
                }
            };
            self.carry_out(effects, now);
        }
        Ok(())
    }

    fn take_requests(&mut self, now: Moment) -> zmq::Result<()> {
        for _ in 0..TURN {
            let Some(envelope) = Envelope::receive(&self.sockets.front.control)? else { break };
            let answer = match codec::decode(&envelope.payload) {
                Ok(Frame { body: Body::Request(request), now: theirs, .. }) => {
                    // Page readers keep no collector alive.
                    if !envelope.from.to.0.starts_with(&self.sockets.front.upstream.name) {
                        self.busy = now;
                    }
                    self.answer(request, &envelope.from, (now, clock::ahead(now, theirs)))
                }
                Ok(Frame { body, .. }) => {
                    self.complaints.raise("a viewer may not send this", &body.kind(), now);
                    Some(Body::Refusal("only requests are taken here; see docs/wire-format.md".to_owned()))
                }
                Err(error) => {
                    self.complaints.raise("a viewer's frame", &error, now);
                    Some(Body::Refusal(error.to_string()))
                }
            };
            if let Some(body) = answer {
                let bytes = self.encode(CONTROL, body, now);
                self.counting.sent(&envelope.from.answer(&self.sockets.front.control, &bytes));
            }
        }
        Ok(())
    }

    /// `ahead`: roughly how far the clock here is ahead of the viewer's.
    fn answer(&mut self, request: Request, viewer: &Address, (now, ahead): (Moment, i64)) -> Option<Body> {
        match request {
            Request::Snapshot => {
                // Before it: a viewer with the snapshot is complete.
                for exit in self.roster.exits() {
                    let bytes = self.encode(CONTROL, Body::Exit(exit), now);
                    self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
                }
                Some(Body::Snapshot(HostSnapshot {
                    version: VERSION.to_owned(),
                    started: self.started,
                    base: self.config.base,
                    jobs: self.roster.snapshot(),
                }))
            }
            Request::History { length } => {
                let jobs = self.roster.jobs();
                for part in self.past.of(&jobs, length.into(), now) {
                    let bytes = self.encode(CONTROL, Body::History(part), now);
                    self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
                }
                None
            }
            Request::Enable { job, on } => {
                let identities = self.roster.identities(&job);
                if identities.is_empty() {
                    return Some(self.nobody(&job));
                }
                for identity in identities {
                    self.tell(&identity, Command::Enable(on), now);
                }
                None
            }
            Request::Capture { job, ranks, order } => {
                self.capture((&job, &ranks), (order.number, Command::Capture(order)), viewer, now)
            }
            Request::CaptureTime { job, ranks, order, window } => {
                let window = CaptureWindow { at: clock::here(window.at, ahead), ..window };
                let command = Command::CaptureTime(order, window);
                self.capture((&job, &ranks), (order.number, command), viewer, now)
            }
            Request::Sample { job, ranks, order } => self.sample((&job, &ranks), order, viewer, (now, ahead)),
            Request::EndCapture { job, number } => {
                self.samplers.end_all(number);
                for identity in self.roster.identities(&job) {
                    self.tell(&identity, Command::EndCapture(number), now);
                }
                None
            }
            Request::Kineto { job, ranks, wish } => {
                self.take_kineto((&job, &ranks), &wish, viewer, (now, ahead))
            }
            Request::Records { job, ranks, most } => {
                let Some(records) = self.roster.records(&job, &ranks, most as usize, now) else {
                    return Some(self.nobody(&job));
                };
                for record in records {
                    let bytes = self.encode(CONTROL, Body::Record(record), now);
                    self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
                }
                None
            }
            Request::Stacks { job, ranks, kept, natively } => {
                let found = self.roster.stacks(&job, &ranks, kept, natively, now);
                self.take_stacks(&job, found, viewer, now)
            }
            Request::Ras { job, rank } => {
                let target = self.roster.ras_target(&job, rank, now)?;
                self.ras.want(target, viewer, Instant::now()).map(Body::Ras)
            }
            Request::GpuStacks { job, ranks } => {
                let found = self.roster.gpu_stacks(&job, &ranks, now);
                self.take_stacks(&job, found, viewer, now)
            }
        }
    }

    /// Sends the known stacks, and reads the others.
    fn take_stacks(
        &mut self,
        job: &JobName,
        found: Option<(Vec<RankStacks>, Vec<Target>)>,
        viewer: &Address,
        now: Moment,
    ) -> Option<Body> {
        let Some((known, targets)) = found else { return Some(self.nobody(job)) };
        for stacks in known {
            let bytes = self.encode(CONTROL, Body::Stacks(stacks), now);
            self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
        }
        for target in targets {
            self.stacks.want(target, Some(viewer));
        }
        None
    }

    /// Commands ranks to record.
    fn capture(
        &mut self,
        (job, ranks): (&JobName, &[Rank]),
        (number, command): (u64, Command),
        viewer: &Address,
        now: Moment,
    ) -> Option<Body> {
        let identities = self.roster.those(job, ranks);
        if identities.is_empty() {
            // Named ranks may live on other hosts.
            return ranks.is_empty().then(|| self.nobody(job));
        }
        self.captures.asked(number, viewer);
        for identity in identities {
            self.tell(&identity, command.clone(), now);
        }
        None
    }

    /// Samples the Python stacks of ranks during their capture.
    fn sample(
        &mut self,
        (job, ranks): (&JobName, &[Rank]),
        order: SampleOrder,
        viewer: &Address,
        (now, ahead): (Moment, i64),
    ) -> Option<Body> {
        let window = order.window.map(|window| CaptureWindow { at: clock::here(window.at, ahead), ..window });
        let order = SampleOrder { window, ..order };
        for target in self.roster.sampled(job, ranks, now) {
            if let Some(refused) = self.samplers.begin(target, &order, viewer, Instant::now()) {
                self.tell_each(vec![(viewer.clone(), Body::PythonSamples(refused))], now);
            }
        }
        None
    }

    /// A request to the ranks' Kineto. Immediate answers are sent here.
    fn take_kineto(
        &mut self,
        (job, ranks): (&JobName, &[Rank]),
        wish: &KinetoWish,
        viewer: &Address,
        (now, ahead): (Moment, i64),
    ) -> Option<Body> {
        let subjects = self.roster.subjects(job, ranks);
        if subjects.is_empty() && ranks.is_empty() {
            return Some(self.nobody(job));
        }
        let answers = self.kineto.wish((job, subjects), wish, viewer, (now, ahead));
        self.tell_each(answers.into_iter().map(|body| (viewer.clone(), body)).collect(), now);
        None
    }

    fn tell_each(&mut self, told: Told, now: Moment) {
        for (viewer, body) in told {
            let bytes = self.encode(CONTROL, body, now);
            self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
        }
    }

    /// Forwards a rank's capture frames to the requester, if the sender is that rank.
    fn pass_on(&mut self, from: &Identity, body: Body, now: Moment) {
        let (number, job, rank) = match &body {
            Body::CaptureAnswer(answer) => (answer.number, &answer.job, answer.rank),
            Body::CapturePart(part) => (part.number, &part.job, part.rank),
            _ => return,
        };
        let is_its_own = self.roster.place_of(from) == Some((job, rank));
        let agreed = matches!(&body, Body::CaptureAnswer(answer) if answer.outcome == CaptureOutcome::Agreed);
        if is_its_own && !agreed {
            self.samplers.end(job, rank, number);
        }
        let Some(viewer) = self.captures.viewer(number).filter(|_| is_its_own).cloned() else { return };
        let bytes = self.encode(CONTROL, body, now);
        self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
    }

    fn nobody(&self, job: &JobName) -> Body {
        let host = &self.config.host;
        Body::Refusal(format!("job {job} has no rank on {host}; `xpu-top status` lists the jobs there"))
    }

    /// Keeps new stacks, and sends them to their requesters.
    fn tell_stacks(&mut self, now: Moment) {
        for Answer { viewers, mut stacks, looked } in self.stacks.turn(Instant::now()) {
            stacks.read_at = now;
            self.roster.keep(&mut stacks, looked);
            if viewers.is_empty() {
                tracing::info!("{}: it hangs; the stacks of rank {} are kept", stacks.job, stacks.rank);
            }
            let bytes = self.encode(CONTROL, Body::Stacks(stacks), now);
            for viewer in viewers {
                self.counting.sent(&viewer.answer(&self.sockets.front.control, &bytes));
            }
        }
    }

    /// Sends sampled stacks to their requesters.
    fn tell_samples(&mut self, now: Moment) {
        let parts = self.samplers.turn(Instant::now());
        self.tell_each(
            parts.into_iter().map(|(viewer, part)| (viewer, Body::PythonSamples(part))).collect(),
            now,
        );
    }

    /// Sends what RAS says to its requesters; to the thread that keeps hangs, also as it came.
    fn tell_ras(&mut self, now: Moment) {
        for ras::Told { viewers, report, raw } in self.ras.turn(Instant::now()) {
            let Upstream { name, ras, .. } = &self.sockets.front.upstream;
            // In a hang: all viewers see it.
            let is_kept = viewers.iter().any(|viewer| viewer.to.0.starts_with(name));
            if is_kept && !raw.is_empty() {
                ras.put(&report.job, raw);
            }
            if is_kept && report.is_answered() {
                self.publish(Body::Ras(report.clone()), now);
            }
            self.tell_each(
                viewers.into_iter().map(|viewer| (viewer, Body::Ras(report.clone()))).collect(),
                now,
            );
        }
    }

    /// Publishes ranks' ends, once their data is complete.
    fn tell_exits(&mut self, now: Moment) {
        for exit in self.exits.turn(Instant::now()) {
            tracing::warn!("{}: rank {} {}", exit.job, exit.rank, exit.sentence());
            self.roster.keep_exit(&exit);
            self.publish(Body::Exit(exit), now);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>, now: Moment) {
        for effect in effects {
            match effect {
                Effect::Tell(to, command) => self.tell(&to, command, now),
                Effect::Publish(body) => self.publish(*body, now),
                Effect::Fresh(job, rank) => {
                    if self.subscriptions.cover(&topic::detail(&job, rank))
                        && let Some(detail) = self.roster.detail(&job, rank)
                    {
                        // First: what is made of the details may need it.
                        if let Some(nccl) = self.roster.nccl(&job, rank) {
                            self.publish(Body::NcclDetail(nccl), now);
                        }
                        self.publish(Body::Detail(detail), now);
                    }
                }
                Effect::Departed(mut departure) => {
                    if self.stacks.reads_gpus_of(departure.report.pid) {
                        // Its core dump is being read, and is not that of an exception.
                        departure.surroundings.gpu_core = None;
                    }
                    self.exits.take(*departure);
                }
                Effect::Complain(about, detail) => self.complaints.raise(about, &detail, now),
            }
        }
    }

    fn tell(&mut self, to: &Identity, command: Command, now: Moment) {
        let bytes = self.encode(CONTROL, Body::Command(command), now);
        self.counting.sent(&tell(&self.sockets.workers, to, &bytes));
    }

    /// Publishes under the body's topic. Frames without subscribers still count, so that new viewers and old
    /// ones see the same numbers.
    fn publish(&mut self, body: Body, now: Moment) {
        let topic = match &body {
            Body::Digest(digest) => topic::overview(&digest.job),
            Body::Detail(detail) => topic::detail(&detail.job, detail.rank),
            Body::NcclDetail(nccl) => topic::detail(&nccl.job, nccl.rank),
            Body::Event(event) => {
                note(event);
                if let Event::Joined(info) = event {
                    self.sockets.front.upstream.wishes.note(info);
                }
                topic::events(event.job())
            }
            Body::Exit(exit) => topic::events(&exit.job),
            Body::Cpu(cpu) => topic::events(&cpu.job),
            Body::Times(times) => topic::events(&times.job),
            Body::Work(work) => topic::events(&work.job),
            Body::Record(record) => topic::events(&record.job),
            Body::Ras(report) => topic::events(&report.job),
            _ => return,
        };
        let is_heard = self.subscriptions.cover(&topic);
        let is_kept =
            matches!(body, Body::Digest(_) | Body::Cpu(_) | Body::Times(_) | Body::Work(_) | Body::Event(_));
        if !is_heard && !is_kept {
            self.counting.next(&topic);
            return;
        }
        let frame = self.frame(&topic, body, now);
        let bytes = codec::encode(&frame);
        if is_kept {
            self.past.keep(&frame, &bytes, now);
            self.runs.take(&frame);
        }
        if !is_heard {
            return;
        }
        let data = &self.sockets.front.data;
        let outcome =
            data.send(topic.as_bytes(), SNDMORE | DONTWAIT).and_then(|()| data.send(bytes, DONTWAIT));
        self.counting.sent(&outcome);
    }

    fn encode(&mut self, stream: &str, body: Body, now: Moment) -> Vec<u8> {
        codec::encode(&self.frame(stream, body, now))
    }

    fn frame(&mut self, stream: &str, body: Body, now: Moment) -> Frame {
        let number = self.counting.next(stream);
        Frame { host: self.config.host.clone(), number, now, lost: self.counting.lost(), body }
    }
}

fn note(event: &Event) {
    match event {
        Event::Joined(info) => tracing::info!("{}: rank {} joined (pid {})", info.job, info.rank, info.pid),
        Event::Life { job, rank, life, .. } => tracing::info!("{job}: rank {rank} is {life:?}"),
    }
}

/// The moment of the digest after the one that was due at `due`: on the second, unless some were missed.
fn next(due: Moment, now: Moment) -> Moment {
    let next = due.after(DIGEST);
    if next > now { next } else { now.after(DIGEST) }
}
