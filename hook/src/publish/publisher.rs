//! The hook's thread: collects the records of launching threads, and publishes to the collector once a
//! second.

mod blind;
mod health;
mod report;
mod totals;

use std::{
    panic::AssertUnwindSafe,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use xpu_wire::{
    codec,
    frame::{
        Body, CaptureAnswer, CaptureEnd, CaptureOrder, CaptureWindow, Command, Frame, Launches, NcclReport,
        StepSource,
    },
    ledger::Call,
    unit::Moment,
};

use crate::{
    capture::cupti,
    exit_note,
    interpose::{
        guard, plugin,
        symbol::{self, Visit},
    },
    observe::{
        call_site,
        lane::Lane,
        launches,
        observer::{self, Observer},
        steps,
    },
    process::{
        clock::{self, monotonic},
        mask, memory, switch, unwinder,
    },
    publish::{
        fold::Fold,
        governor::Governor,
        identity::{Identity, Membership},
        line::Line,
    },
    python::optimizer,
};

const PUBLISH_EVERY: Duration = Duration::from_secs(1);

/// The first summary is sent earlier, because a user may be waiting for the job to appear.
const FIRST_AFTER: Duration = Duration::from_millis(200);

/// Interval between checks of the rings while operations are pending, and while none are.
const BUSY: Duration = Duration::from_millis(10);
const IDLE: Duration = Duration::from_millis(50);

/// Address space that libraries may take when this thread calls them. The C library ends the process if there
/// is none for their thread-local storage. At the first call, the C library reserves 64 MiB for the thread,
/// and for a moment twice as much.
const NEEDED: usize = 1 << 20;
pub(crate) const NEEDED_AT_FIRST: usize = 130 << 20;

/// Interval between checks whether all threads of the program have ended.
const ALONE_EVERY: Duration = Duration::from_millis(200);

/// In a process younger than this, this thread checks often for an exit, because the exit does not wake it.
const YOUNG: Duration = Duration::from_secs(2);

/// Maximum number of parts of a capture sent at one visit.
const PARTS_AT_ONCE: usize = 4;

/// How long sending the last message may take, and the interval between attempts.
const LINGER: Duration = Duration::from_millis(80);
const TRY_EVERY: Duration = Duration::from_millis(1);

/// The body of the thread. A panic in it turns observing off, and does not end the program.
pub(crate) fn run(observer: &'static Observer, identity: Identity) {
    unwinder::find_loaded();
    let published = guard::unobserved(|| {
        let publish = || Publisher::new(observer, identity).publish_until_stopped();
        // After a panic, the publisher's state may be inconsistent, but nothing reads it.
        std::panic::catch_unwind(AssertUnwindSafe(publish))
    });
    if let Err(payload) = published {
        std::mem::forget(payload);
        switch::panicked();
    }
    observer.set_stopped();
}

/// Whether the next check of the program's threads is due.
fn now_and_then(asked: &mut Instant) -> bool {
    let is_time = asked.elapsed() >= ALONE_EVERY;
    if is_time {
        *asked = Instant::now();
    }
    is_time
}

struct Publisher {
    observer: &'static Observer,
    fold: Fold,
    governor: Governor,
    identity: Identity,
    line: Option<Line>,
    number: u64,
    lost: u64,
    /// Whether the identity was sent.
    introduced: bool,
    everything: bool,
    published: Instant,
    /// Whether this thread has called libraries, so that their thread state is set up.
    has_visited: bool,
    /// Whether there is address space for calls of libraries.
    has_room: bool,
}

impl Publisher {
    fn new(observer: &'static Observer, identity: Identity) -> Self {
        Self {
            observer,
            fold: Fold::default(),
            governor: Governor::new(switch::time_on(monotonic())),
            line: identity.socket.clone().map(|path| Line::new(path, Instant::now())),
            identity,
            number: 0,
            lost: 0,
            introduced: false,
            everything: true,
            published: Instant::now(),
            has_visited: false,
            has_room: true,
        }
    }

    fn publish_until_stopped(mut self) {
        launches::report_all(steps::counts(StepSource::Detected));
        exit_note::alone::is_main_thread_there();
        let mut due = Instant::now() + FIRST_AFTER;
        let mut exit_known = false;
        let mut asked_whether_alone = Instant::now();
        let born = Instant::now();
        while !self.observer.is_stopping() {
            let rings = self.observer.bell().rings();
            self.observer.ledger().heartbeat(Moment::now());
            clock::compare();
            clock::counter::compare();
            exit_note::look(self.observer);
            optimizer::attach_if_late();
            call_site::prepare();
            if memory::ran_out() {
                // From now on nothing is sent, because that needs memory. The heartbeat in the ledger
                // continues.
                self.observer.bell().wait(rings, IDLE);
                continue;
            }
            self.observer.make_lanes();
            symbol::look_for_unloaded();
            // While the program unloads a library, no library is called.
            let is_due = Instant::now() >= due;
            self.has_room = memory::is_left(if self.has_visited { NEEDED } else { NEEDED_AT_FIRST });
            if let Some(visit) = Visit::begin().filter(|_| self.has_room) {
                self.poll();
                if is_due {
                    cupti::release_memory();
                }
                self.has_visited = true;
                drop(visit);
            }
            self.send();
            self.run_commands();
            self.send_captured();
            if !exit_known && self.fold.has_read() {
                observer::register_exit();
                exit_known = true;
            }
            if is_due {
                due = Instant::now() + PUBLISH_EVERY;
                self.observer.lanes().for_each(Lane::reclaim);
                self.observer.lanes().for_each(Lane::look_at_queries);
                self.publish();
            }
            if now_and_then(&mut asked_whether_alone)
                && let Some(code) = exit_note::alone::last_thread_ends_with()
            {
                self.send_last();
                // Exit handlers may run on this thread now, and must find no blocked signals.
                mask::set(0);
                if code != 0 {
                    // The main thread has ended by the system call, so the process's code is that of the
                    // thread that ends last.
                    // SAFETY: it ends this thread.
                    unsafe { libc::syscall(libc::SYS_exit, code) };
                }
                // The C library ends the process when the last thread returns, as it would without the hook.
                return;
            }
            self.send();
            let pause = if self.fold.is_waiting() || self.fold.capture.is_active() || born.elapsed() < YOUNG {
                BUSY
            } else {
                IDLE
            };
            self.observer.bell().wait(rings, pause);
        }
        if !memory::ran_out() {
            self.send_last();
        }
        // The memory is not freed, because the process would have to wait for that.
        std::mem::forget(self);
    }

    /// Reads new records of launching threads, and the GPU's progress.
    fn poll(&mut self) {
        self.fold.gather(self.observer);
        self.governor.learn(self.fold.take_gaps());
        self.governor.visit(self.observer, switch::time_on(monotonic()));
        plugin::govern(self.observer, monotonic());
        if let Some(pace) = self.fold.pace() {
            steps::govern(pace, self.observer.overhead.event_cost.load(Relaxed));
        }
    }

    fn send_last(&mut self) {
        if let Some(visit) = Visit::begin().filter(|_| memory::is_left(NEEDED)) {
            self.fold.gather(self.observer);
            self.fold.settle_gemms(&self.observer.gpus, true);
            drop(visit);
        }
        self.publish();
        self.fold.capture.finish(CaptureEnd::ProcessEnd);
        self.send_captured();
        if self.introduced {
            self.send_body(Body::Goodbye);
        }
        let until = Instant::now() + LINGER;
        self.send();
        while self.line.as_ref().is_some_and(|line| !line.is_done()) && Instant::now() < until {
            std::thread::sleep(TRY_EVERY);
            self.send();
        }
    }

    fn send(&mut self) {
        if let Some(line) = &mut self.line {
            line.visit(Instant::now());
        }
    }

    /// Executes the collector's commands.
    fn run_commands(&mut self) {
        loop {
            let Some(bytes) = self.line.as_mut().and_then(|line| line.receive(Instant::now())) else {
                return;
            };
            // Frames of another version are not executed.
            match codec::decode(&bytes).map(|frame| frame.body) {
                Ok(Body::Command(Command::Introduce)) => {
                    self.introduced = false;
                    self.everything = true;
                    self.publish();
                }
                Ok(Body::Command(Command::Enable(on))) => switch::set(on),
                Ok(Body::Command(Command::Capture(order))) => self.answer(order, None),
                Ok(Body::Command(Command::CaptureTime(order, window))) => self.answer(order, Some(window)),
                Ok(Body::Command(Command::EndCapture(number))) => self.fold.capture.cancel(number),
                _ => {}
            }
        }
    }

    fn answer(&mut self, order: CaptureOrder, window: Option<CaptureWindow>) {
        let counted = self.observer.steps.load(Relaxed);
        let (outcome, completed) = self.fold.capture.order(order, window, counted);
        let (job, rank) = (self.identity.info.job.clone(), self.identity.info.rank);
        self.send_body(Body::CaptureAnswer(CaptureAnswer {
            number: order.number,
            job,
            rank,
            completed,
            outcome,
        }));
    }

    /// Sends a part of the captured data, if there is any. Only a part, so that other messages also fit into
    /// the queue.
    fn send_captured(&mut self) {
        for _ in 0..PARTS_AT_ONCE {
            let Some(part) = self.fold.capture.next_part() else { return };
            let info = &self.identity.info;
            if !self.send_body(Body::CapturePart(part.of_rank(info.job.clone(), info.rank))) {
                return self.fold.capture.not_sent(part);
            }
        }
    }

    fn publish(&mut self) {
        let launches = self.launches();
        if !self.is_rank(launches) {
            return;
        }
        let by_torch = self.observer.optimizers.placed();
        let gpus = self.observer.gpus.several();
        let is_another = self.identity.learn(by_torch, memberships(self.observer));
        let has_several = gpus.first().is_some_and(|&first| self.identity.has_several(first));
        if is_another || has_several {
            self.introduced = false;
            self.everything = true;
        }
        // The next check confirms or corrects the identity.
        if !self.introduced && self.identity.is_unsure() && !self.observer.is_stopping() {
            return;
        }
        if !self.introduced {
            self.introduced = self.send_body(Body::Hello(self.identity.info.clone()));
        }
        if std::mem::take(&mut self.everything) {
            self.fold.mark_all_unsent();
        }
        let nccl = self.nccl();
        if nccl != NcclReport::default() {
            self.send_body(Body::Nccl(nccl));
        }
        loop {
            let summary = self.summary(launches, &gpus);
            if !self.send_body(Body::Summary(summary)) {
                // The next message that is sent must include the content of this one.
                self.everything = true;
                return;
            }
            if !self.fold.has_more() {
                return;
            }
        }
    }

    /// Whether this process is a rank. torchrun's agents and compilers' helpers load CUDA but never launch
    /// work. A rank launches work, marks steps, or at least tries to create communicators, where many jobs
    /// hang.
    fn is_rank(&self, launches: Launches) -> bool {
        let reading = self.observer.ledger().read();
        let meets = !reading.communicators.is_empty()
            || reading.threads.iter().any(|thread| thread.call == Call::CommunicatorInit);
        meets
            || launches != Launches::default()
            || self.observer.steps.load(Relaxed) > 0
            || self.observer.optimizers.completed() > 0
    }

    /// Sends a message. `false` if it did not fit and was dropped.
    fn send_body(&mut self, body: Body) -> bool {
        let Some(line) = &mut self.line else { return false };
        self.number += 1;
        let frame = Frame {
            host: self.identity.host.clone(),
            number: self.number,
            now: Moment::now(),
            lost: self.lost,
            body,
        };
        let sent = line.queue(codec::encode(&frame));
        self.lost += u64::from(!sent);
        sent
    }
}

/// The open communicators whose rank and size are known.
fn memberships(observer: &Observer) -> impl Iterator<Item = Membership> + Clone {
    let open = observer.communicators.open().filter(|slot| slot.size() > 0);
    open.map(|slot| Membership { communicator: slot.id(), rank: slot.rank(), size: slot.size() })
}
