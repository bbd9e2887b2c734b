//! The hook's own thread: gathers what launching threads left, and tells the collector once a second.

use std::{
    ffi::c_int,
    thread,
    time::{Duration, Instant},
};

use xpu_shared::{
    codec,
    frame::{
        Body, CollectiveSample, Command, CommunicatorState, Frame, HookHealth, Launches, StepSource, Steps,
        Summary,
    },
    ledger::CommunicatorReading,
    socket,
    unit::{Moment, Nanoseconds},
};

use crate::{
    fold::{Fold, Sample},
    guard,
    identity::Identity,
    lane::{Count, Lane},
    memory,
    observer::{self, Observer},
    room, switch,
};

const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// The first summary comes sooner: somebody may be waiting to see whether the job is there.
const FIRST_AFTER: Duration = Duration::from_millis(200);

/// Between two visits to the rings while operations are under way, and while none is.
const BUSY: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(50);

/// What a launch costs its thread that is recorded but not timed (a product 25 ns, a collective 35 ns, in a group 55 ns), and one
/// that is only counted (a kernel, 8 ns): twice what `make bench` finds in warm caches, or nearly.
const NS_RECORDED: u64 = 60;
const NS_COUNTED: u64 = 20;

/// How long the last message may take to leave.
const LINGER_MS: c_int = 80;

/// The body of the thread. A panic in it ends the observing, not the program.
pub(crate) fn run(observer: &'static Observer, identity: Identity) {
    #[cfg(not(test))]
    crate::last_resort::this_thread_is_ours();
    let published = guard::unobserved(|| {
        std::panic::catch_unwind(|| Publisher::new(observer, identity).publish_until_stopped())
    });
    if published.is_err() {
        switch::panicked();
    }
    observer.set_stopped();
}

struct Publisher {
    observer: &'static Observer,
    fold: Fold,
    identity: Identity,
    line: Option<Line>,
    number: u64,
    lost: u64,
    /// Who I am was said, or is not worth saying yet.
    introduced: bool,
    everything: bool,
    published: Instant,
    /// Operations timed, and nanoseconds that cost launching threads, as of the last summary.
    timed: u64,
    /// Operations recorded and not timed, and operations only counted, likewise.
    recorded: u64,
    counted: u64,
    spent: u64,
}

/// The way to the collector.
struct Line {
    socket: zmq::Socket,
    /// Dropped after the socket: ending a context waits for what is still to be sent.
    _context: zmq::Context,
}

impl Line {
    /// `None` if there is no room for ZeroMQ, or it gives no socket; the path need not exist yet.
    fn open(identity: &Identity) -> Option<Self> {
        let path = identity.socket.as_ref().filter(|_| room::is_left())?;
        let context = zmq::Context::new();
        let socket = socket::worker(&context).ok()?;
        socket.connect(&format!("ipc://{}", path.display())).ok()?;
        Some(Self { socket, _context: context })
    }
}

impl Publisher {
    fn new(observer: &'static Observer, identity: Identity) -> Self {
        Self {
            observer,
            fold: Fold::default(),
            line: Line::open(&identity),
            identity,
            number: 0,
            lost: 0,
            introduced: false,
            everything: true,
            published: Instant::now(),
            timed: 0,
            recorded: 0,
            counted: 0,
            spent: 0,
        }
    }

    fn publish_until_stopped(mut self) {
        let mut due = Instant::now() + FIRST_AFTER;
        let mut exit_known = false;
        while !self.observer.is_stopping() {
            self.observer.ledger().beat(Moment::now());
            if memory::ran_out() {
                // All that is left to say is that this process lives: ZeroMQ would need memory to say more.
                thread::park_timeout(IDLE);
                continue;
            }
            self.fold.gather(self.observer);
            self.obey();
            if !exit_known && self.fold.has_read() {
                observer::register_exit();
                exit_known = true;
            }
            if Instant::now() >= due {
                due = Instant::now() + PUBLISH_EVERY;
                self.observer.lanes().for_each(Lane::reclaim);
                self.publish();
            }
            thread::park_timeout(if self.fold.is_waiting() { BUSY } else { IDLE });
        }
        if memory::ran_out() {
            // Closing asks for memory too.
            return std::mem::forget(self);
        }
        self.fold.gather(self.observer);
        self.publish();
        self.say(Body::Goodbye);
        if let Some(line) = self.line.take() {
            let _ = line.socket.set_linger(LINGER_MS);
        }
    }

    /// What the collector asks for.
    fn obey(&mut self) {
        loop {
            let Some(Ok(bytes)) = self.line.as_ref().map(|line| line.socket.recv_bytes(zmq::DONTWAIT)) else {
                return;
            };
            // A frame of another version is nothing this hook could obey.
            match codec::decode(&bytes).map(|frame| frame.body) {
                Ok(Body::Command(Command::Introduce)) => {
                    self.introduced = false;
                    self.everything = true;
                    self.publish();
                }
                Ok(Body::Command(Command::Enable(on))) => switch::set(on),
                _ => {}
            }
        }
    }

    fn publish(&mut self) {
        let launches = self.launches();
        if !self.is_rank(launches) {
            return;
        }
        if self.line.is_none() && !self.observer.is_stopping() {
            self.line = Line::open(&self.identity);
        }
        if !self.introduced {
            self.introduced = self.say(Body::Hello(self.identity.info.clone()));
        }
        if std::mem::take(&mut self.everything) {
            self.fold.say_everything();
        }
        loop {
            let summary = self.summary(launches);
            if !self.say(Body::Summary(summary)) {
                // The next one that gets through must hold what this one held.
                self.everything = true;
                return;
            }
            if !self.fold.has_more() {
                return;
            }
        }
    }

    /// torchrun's agents and compilers' helpers load CUDA and never launch anything. A rank launches or marks steps, or
    /// at least tries to meet others: many jobs hang there.
    fn is_rank(&self, launches: Launches) -> bool {
        let reading = self.observer.ledger().read();
        let meets = !reading.communicators.is_empty() || !reading.threads.is_empty();
        meets
            || launches != Launches::default()
            || self.observer.steps.load(std::sync::atomic::Ordering::Relaxed) > 0
    }

    /// `false` if the message found no room and was dropped.
    fn say(&mut self, body: Body) -> bool {
        let Some(line) = self.line.as_ref().filter(|_| room::is_left_to_send()) else { return false };
        self.number += 1;
        let frame = Frame {
            host: self.identity.host.clone(),
            number: self.number,
            now: Moment::now(),
            lost: self.lost,
            body,
        };
        let sent = line.socket.send(codec::encode(&frame), zmq::DONTWAIT).is_ok();
        self.lost += u64::from(!sent);
        sent
    }

    fn sum(&self, counter: impl Fn(&Lane) -> &Count) -> u64 {
        self.observer.lanes().map(|lane| counter(lane).get()).sum()
    }

    fn launches(&self) -> Launches {
        Launches {
            kernels: self.sum(|lane| &lane.counters.kernels),
            graphs: self.sum(|lane| &lane.counters.graphs),
            gemms: self.sum(|lane| &lane.counters.gemms),
            collectives: self.sum(|lane| &lane.counters.collectives),
            point_to_point: self.sum(|lane| &lane.counters.point_to_point),
            captured: self.sum(|lane| &lane.counters.captured),
        }
    }

    /// What fits into one message; steps and samples are in the last of them.
    fn summary(&mut self, launches: Launches) -> Summary {
        let interval = Nanoseconds::from(self.published.elapsed());
        self.published = Instant::now();
        let reading = self.observer.ledger().read();
        let communicators: Vec<_> =
            reading.communicators.iter().map(|line| self.communicator(line)).collect();
        self.charge();
        let (gemms, collectives) = (self.fold.take_gemms(), self.fold.take_collectives());
        let (mut steps, mut samples) = (None, Vec::new());
        if !self.fold.has_more() {
            samples = self.fold.take_samples(Summary::SAMPLES);
            steps = self.fold.take_steps().map(|(completed, durations)| Steps {
                source: StepSource::Marked,
                completed: xpu_shared::id::Step(completed),
                at: reading.step_at,
                durations,
            });
        }
        Summary {
            interval,
            steps,
            gemms,
            collectives,
            samples: samples.iter().filter_map(|sample| indexed(sample, &communicators)).collect(),
            communicators,
            launches,
            hook: self.health(),
        }
    }

    /// Estimates what launching threads spent since the last summary: operations timed at the dearest lane's typical price,
    /// the others at a fixed one.
    fn charge(&mut self) {
        let launches = self.launches();
        let recorded = launches.gemms + launches.collectives + launches.point_to_point;
        let timed = self.sum(|lane| &lane.counters.timed);
        let price = self.observer.lanes().map(Lane::typical_cost).max().unwrap_or(0);
        let recorded = recorded.saturating_sub(timed);
        let counted = launches.kernels + launches.graphs;
        self.spent += (timed - self.timed) * price
            + recorded.saturating_sub(self.recorded) * NS_RECORDED
            + (counted - self.counted) * NS_COUNTED;
        (self.timed, self.recorded, self.counted) = (timed, recorded, counted);
    }

    fn communicator(&self, line: &CommunicatorReading) -> CommunicatorState {
        let parent = self
            .observer
            .communicators
            .open()
            .find(|slot| slot.id() == line.id)
            .and_then(super::communicator::Slot::parent);
        CommunicatorState {
            id: line.id,
            parent,
            rank: line.rank,
            size: line.size,
            entered: line.entered,
            enqueued: line.enqueued,
            completed: line.completed,
            last_operation: line.last_operation,
            last_bytes: line.last_bytes,
        }
    }

    fn health(&self) -> HookHealth {
        let lanes = self.observer.lanes().count();
        let dropped = self.observer.lanes().map(|lane| lane.ring.dropped()).sum::<u64>();
        let unobserved = self.observer.unobserved();
        HookHealth {
            enabled: switch::is_on(),
            dropped_records: dropped + unobserved + self.fold.dropped_keys(),
            untimed: self.sum(|lane| &lane.counters.untimed) + self.fold.failed(),
            spent: Nanoseconds(self.spent),
            thread_cpu: thread_cpu(),
            memory: (size_of::<Observer>() + lanes * Lane::MEMORY + self.fold.memory()) as u64,
            gemm_rate: switch::gemm_rate(),
            collective_rate: switch::collective_rate(),
            blind: self.blind(),
        }
    }

    fn blind(&self) -> Vec<String> {
        let unknown = self.observer.communicators.unknown();
        let mut blind: Vec<String> = self.observer.complaint.iter().cloned().collect();
        if unknown > 0 {
            blind.push(format!("{unknown} NCCL calls on communicators whose making was not seen"));
        }
        blind
    }
}

/// A sample with its communicator's place in the message; dropped if the communicator is closed already.
fn indexed(sample: &Sample, communicators: &[CommunicatorState]) -> Option<CollectiveSample> {
    let index = communicators.iter().position(|communicator| communicator.id == sample.communicator)?;
    Some(CollectiveSample {
        communicator: u8::try_from(index).ok()?,
        sequence: sample.sequence,
        operation: sample.operation,
        bus_bytes: sample.bus_bytes,
        duration: sample.duration,
    })
}

fn thread_cpu() -> Nanoseconds {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    Nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}
