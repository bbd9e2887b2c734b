//! Samples one rank, in a separate process.

use std::{
    collections::HashMap,
    io::{self, Read, Write},
    os::fd::AsRawFd,
    thread::sleep,
    time::{Duration, Instant},
};

use py_spy::{Config, PythonSpy, config::LockingStrategy};
use xpu_wire::{
    codec,
    frame::{Body, Frame, PythonSamples, Request, SampleAccount, SampleOrder, SampledThread, StackFrame},
    id::Pid,
    process::Process,
    unit::{Moment, Nanoseconds},
};

use super::{
    super::{
        kernel,
        native::Unwinding,
        python::{self, PythonThread},
        read::end_with_the_collector,
    },
    of_order,
    part::{Names, Part},
    schedule::Schedule,
};

/// Interval of checks whether the first step begins.
const LOOK: Duration = Duration::from_millis(1);

/// Interval at which the list of threads is read.
const THREADS: Duration = Duration::from_millis(500);

/// Time in addition to the capture's own limit.
const SPARE: Duration = Duration::from_mins(1);

/// Largest frame of an order.
const ORDER: usize = 4096;

/// Takes an order from `from`, samples the process, and writes the parts to `to`. Ends when `from` is closed.
pub fn sample_python(
    pid: Pid,
    ledger: Option<u32>,
    from: &mut (impl Read + AsRawFd),
    to: &mut impl Write,
) -> io::Result<()> {
    let order = read_order(from)?;
    let length = order.window.map_or(Duration::ZERO, |window| window.length.into());
    end_with_the_collector(Duration::from(order.capture.limit) + length + SPARE);
    // SAFETY: changes the flags of a descriptor that is open for the length of the call.
    if unsafe { libc::fcntl(from.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let config = Config { blocking: LockingStrategy::NonBlocking, ..Config::default() };
    let attached = py_spy::Pid::try_from(pid.0)
        .map_err(|_out_of_range| "no such process".to_owned())
        .and_then(|process| PythonSpy::new(process, &config).map_err(|error| python::reason(pid, &error)));
    let mut clock = Schedule::new(order, pid, ledger, Moment::now());
    let mut sampling = Sampling {
        pid,
        process: Process::find(pid),
        numbers: kernel::threads(pid).0,
        looked: Instant::now(),
        part: Part::default(),
        sent: 0,
        names: order.natively.then(|| Naming { unwinding: Unwinding::of(pid), known: HashMap::new() }),
        account: SampleAccount { began: Moment::now(), ..of_order(&order) },
    };
    match attached {
        Ok(mut spy) => {
            while !clock.begins(Moment::now())
                && !clock.ends(Moment::now())
                && is_wanted(from)
                && !sampling.has_ended()
            {
                sleep(LOOK);
            }
            sampling.run(&mut spy, &mut clock, from, to)?;
        }
        Err(why) => sampling.account.why = Some(why),
    }
    sampling.finish(to)
}

fn read_order(from: &mut impl Read) -> io::Result<SampleOrder> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "not an order to sample");
    let mut frame = vec![0; codec::HEADER];
    from.read_exact(&mut frame)?;
    let length = u32::from_le_bytes([frame[8], frame[9], frame[10], frame[11]]) as usize;
    frame.resize(codec::HEADER + length.min(ORDER), 0);
    from.read_exact(&mut frame[codec::HEADER..])?;
    match codec::decode(&frame).map(|frame| frame.body) {
        Ok(Body::Request(Request::Sample { order, .. })) => Ok(order),
        _ => Err(wrong()),
    }
}

/// Whether the collector still holds the other end of `from`.
fn is_wanted(from: &mut impl Read) -> bool {
    match from.read(&mut [0; 1]) {
        Ok(count) => count > 0,
        Err(error) => matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted),
    }
}

struct Sampling {
    pid: Pid,
    process: Process,
    /// The process's threads, and when they were listed.
    numbers: Vec<u32>,
    looked: Instant,
    part: Part,
    sent: u32,
    /// Finds the names of native frames; `None` without native frames.
    names: Option<Naming>,
    account: SampleAccount,
}

impl Sampling {
    fn has_ended(&self) -> bool {
        self.process.lives() != Some(true)
    }

    fn run(
        &mut self,
        spy: &mut PythonSpy,
        clock: &mut Schedule,
        from: &mut impl Read,
        to: &mut impl Write,
    ) -> io::Result<()> {
        let period = Duration::from_secs(1) / self.account.rate.clamp(1, SampleOrder::RATE);
        self.account.began = Moment::now();
        let mut due = Instant::now();
        while is_wanted(from) && !clock.ends(Moment::now()) {
            if !self.read(spy) && self.has_ended() {
                self.account.why = Some("its process has ended".to_owned());
                break;
            }
            if self.part.is_full() {
                if self.sent + 1 >= PythonSamples::PARTS {
                    self.account.why = Some("the limit of samples per rank is reached".to_owned());
                    break;
                }
                self.send(None, to)?;
            }
            due += period;
            let now = Instant::now();
            if let Some(late) = now.checked_duration_since(due) {
                let missed = (late.as_nanos() / period.as_nanos()) as u32;
                self.account.missed += u64::from(missed);
                due += period * missed;
            }
            sleep(due.saturating_duration_since(Instant::now()));
        }
        Ok(())
    }

    /// Reads all threads once. Keeps the first thread, and the others if they run.
    fn read(&mut self, spy: &mut PythonSpy) -> bool {
        if self.looked.elapsed() >= THREADS {
            (self.numbers, self.looked) = (kernel::threads(self.pid).0, Instant::now());
        }
        let begun = Moment::now();
        let Ok(traces) = spy.get_stack_traces() else {
            self.account.failed += 1;
            return false;
        };
        // The stacks are those of a moment between `begun` and now.
        let at = Moment(begun.0 + Moment::now().since(begun).as_nanos() as u64 / 2);
        self.account.readings += 1;
        for trace in traces {
            let is_active = trace.active;
            let PythonThread { stack, frames } = python::thread(self.pid, trace, &self.numbers);
            if !stack.main && !is_active {
                continue;
            }
            let native = stack.thread.map(|number| self.native(number)).unwrap_or_default();
            let thread = SampledThread { number: stack.thread, name: stack.name, main: stack.main };
            self.part.push(at, thread, frames, native);
        }
        true
    }

    /// The addresses of a thread's native frames, innermost first.
    fn native(&mut self, number: u32) -> Vec<u64> {
        let Some(names) = &mut self.names else { return Vec::new() };
        let Some((addresses, held)) = names.unwinding.addresses(self.pid, number) else { return Vec::new() };
        let held = Nanoseconds::from(held);
        self.account.stops += 1;
        self.account.stopped = Nanoseconds(self.account.stopped.0 + held.0);
        self.account.longest_stop = self.account.longest_stop.max(held);
        addresses
    }

    fn send(&mut self, account: Option<SampleAccount>, to: &mut impl Write) -> io::Result<()> {
        let part = match &mut self.names {
            Some(names) => self.part.take(names),
            None => self.part.take(&mut Nameless),
        };
        let body = Body::PythonSamples(PythonSamples { part: self.sent, account, ..part });
        self.sent += 1;
        let frame = Frame { host: "".into(), number: 0, now: Moment::now(), lost: 0, body };
        to.write_all(&codec::encode(&frame))?;
        to.flush()
    }

    fn finish(mut self, to: &mut impl Write) -> io::Result<()> {
        self.account.ended = Moment::now();
        self.account.cpu = spent();
        let account = std::mem::take(&mut self.account);
        self.send(Some(account), to)
    }
}

/// CPU time of this process.
fn spent() -> Nanoseconds {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Nanoseconds(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The native frames of a process, and their names found so far.
struct Naming {
    unwinding: Unwinding,
    known: HashMap<u64, Option<StackFrame>>,
}

impl Names for Naming {
    fn names(&mut self, addresses: &[u64]) -> Vec<Option<StackFrame>> {
        let new: Vec<_> = addresses.iter().copied().filter(|at| !self.known.contains_key(at)).collect();
        let names = self.unwinding.names(&new);
        self.known.extend(new.iter().map(|at| (*at, names.get(at).cloned())));
        addresses.iter().map(|at| self.known.get(at).cloned().flatten()).collect()
    }
}

struct Nameless;

impl Names for Nameless {
    fn names(&mut self, addresses: &[u64]) -> Vec<Option<StackFrame>> {
        vec![None; addresses.len()]
    }
}
