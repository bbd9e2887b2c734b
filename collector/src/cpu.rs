//! Measures whether ranks get the CPU time they need, and whether they use any. The figures come from the
//! kernel: `/proc/PID/task/TID/schedstat`, `/proc/PID/io`, the `cpu.stat` of the process's control group, and
//! whether the process is stopped.

mod quota;

use std::{collections::BTreeMap, fs};

use quota::Quota;
use xpu_wire::{
    frame::RankCpu,
    id::{Pid, Rank},
    process,
    unit::{Moment, Nanoseconds},
};

/// Every tenth reading of a process reads all its threads. The readings in between read only the threads that
/// were busy at the last full reading.
const ALL_EVERY: u32 = 10;

/// Threads read per process, and busy threads read in between.
const THREADS: usize = 512;
const FOLLOWED: usize = 16;

/// A thread is busy if it ran, or waited to run, for this share of the time.
const BUSY: f64 = 0.01;

/// A process is busy if its main thread ran for this share of the time, if it never slept (it ran or waited to
/// run for nearly all of the time), or if it read and wrote this many bytes per second. A thread that only
/// sleeps may wait for a core each time it wakes up.
const BUSY_SHARE: f64 = 0.25;
const AWAKE_SHARE: f64 = 0.9;
const BUSY_BYTES: f64 = 1e6;

/// The activity of one process since the previous reading.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CpuReading {
    pub(crate) wait: RankCpu,
    pub(crate) is_busy: bool,
}

/// The processes that are read.
#[derive(Debug, Default)]
pub(crate) struct Cpus(BTreeMap<Pid, Process>);

#[derive(Debug)]
struct Process {
    at: Moment,
    readings: u32,
    threads: Vec<Thread>,
    all: Vec<Thread>,
    all_at: Moment,
    quota: Option<Quota>,
    /// Bytes read and written so far.
    moved: u64,
}

/// A thread's time since its start: the time it ran, and the time it was ready to run without a core.
#[derive(Clone, Copy, Debug)]
struct Thread {
    id: i32,
    ran: u64,
    waited: u64,
}

impl Cpus {
    /// The activity of the rank's process since the last reading. `None` for the first reading, and for a
    /// process that is gone.
    pub(crate) fn read(&mut self, rank: Rank, pid: Pid, now: Moment) -> Option<CpuReading> {
        let known = self.0.entry(pid).or_insert_with(|| Process::new(pid, now));
        let reading = known.read(rank, pid, now);
        if reading.is_none() && known.at < now {
            self.0.remove(&pid);
        }
        reading
    }

    /// Forgets the processes that were not read at `now`.
    pub(crate) fn forget(&mut self, now: Moment) {
        self.0.retain(|_, process| process.at == now);
    }
}

impl Process {
    fn new(pid: Pid, now: Moment) -> Self {
        let all = all(pid);
        let main = all.iter().filter(|thread| thread.id == pid.0.cast_signed()).copied().collect();
        // Processes that started together have their full readings at different times.
        let readings = pid.0 % ALL_EVERY;
        Self {
            at: now,
            readings,
            threads: main,
            all,
            all_at: now,
            quota: Quota::of(pid),
            moved: bytes_moved(pid),
        }
    }

    fn read(&mut self, rank: Rank, pid: Pid, now: Moment) -> Option<CpuReading> {
        let interval = now.since(self.at);
        if interval.is_zero() {
            return None;
        }
        let state = process::state(pid)?;
        let (mut longest, mut ran, mut awake): (Option<(u64, i32)>, u64, u64) = (None, 0, 0);
        self.threads.retain_mut(|thread| {
            let Some(next) = Thread::read(pid, thread.id) else { return false };
            longest = longest.max(Some((next.waited.saturating_sub(thread.waited), thread.id)));
            if thread.id == pid.0.cast_signed() {
                ran = next.ran.saturating_sub(thread.ran);
                awake = next.busy().saturating_sub(thread.busy());
            }
            *thread = next;
            true
        });
        self.readings += 1;
        if self.readings.is_multiple_of(ALL_EVERY) {
            self.follow(pid, now);
        }
        self.at = now;
        let moved = bytes_moved(pid);
        let rate = moved.saturating_sub(self.moved) as f64 / interval.as_secs_f64();
        self.moved = moved;
        let (waited, id) = longest.unwrap_or((0, 0));
        let name = fs::read_to_string(format!("/proc/{pid}/task/{id}/comm")).unwrap_or_default();
        let share = |time: u64| time as f64 / interval.as_nanos() as f64;
        let is_busy = works(share(ran), share(awake), rate);
        let wait = RankCpu {
            rank,
            pid,
            interval: interval.into(),
            waited: Nanoseconds(waited),
            thread: name.trim_end().to_owned(),
            throttled: self.quota.as_mut().and_then(Quota::grown),
            stopped: state == 'T',
        };
        Some(CpuReading { wait, is_busy })
    }

    /// Reads all threads. From now on, follows the main thread, and those that were busy since the last full
    /// reading.
    fn follow(&mut self, pid: Pid, now: Moment) {
        let passed = now.since(self.all_at).as_nanos() as f64;
        let all = all(pid);
        let busy = |thread: &Thread| {
            let before = self.all.iter().find(|before| before.id == thread.id);
            thread.busy().saturating_sub(before.map_or(0, Thread::busy))
        };
        let is_main = |thread: &Thread| thread.id == pid.0.cast_signed();
        let mut followed: Vec<(u64, Thread)> = all.iter().map(|thread| (busy(thread), *thread)).collect();
        followed.retain(|(busy, thread)| is_main(thread) || *busy as f64 > BUSY * passed);
        followed.sort_by_key(|(busy, thread)| (!is_main(thread), std::cmp::Reverse(*busy)));
        self.threads = followed.into_iter().take(FOLLOWED).map(|(_, thread)| thread).collect();
        (self.all, self.all_at) = (all, now);
    }
}

/// Whether a process works whose main thread ran, and ran or waited to run, for these shares of the time, and
/// which moved this many bytes per second.
fn works(ran: f64, awake: f64, bytes: f64) -> bool {
    ran >= BUSY_SHARE || awake >= AWAKE_SHARE || bytes >= BUSY_BYTES
}

impl Thread {
    fn read(pid: Pid, id: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{id}/schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(str::parse);
        let (Some(Ok(ran)), Some(Ok(waited))) = (fields.next(), fields.next()) else { return None };
        Some(Self { id, ran, waited })
    }

    fn busy(&self) -> u64 {
        self.ran + self.waited
    }
}

/// Bytes that the process moved by system calls for files and pipes; 0 if the kernel does not report them.
fn bytes_moved(pid: Pid) -> u64 {
    let text = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let of = |line: &str| {
        let (name, bytes) = line.split_once(": ")?;
        ["rchar", "wchar"].contains(&name).then(|| bytes.parse::<u64>().ok())?
    };
    text.lines().filter_map(of).sum()
}

fn all(pid: Pid) -> Vec<Thread> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.take(THREADS).filter_map(|id| Thread::read(pid, id)).collect()
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicBool, Ordering::Relaxed},
        thread,
        time::{Duration, Instant},
    };

    use super::*;

    /// On a busy host, a rank that slept in a loop counted as one that works, and its hang was not reported.
    #[test]
    fn a_thread_that_sleeps_does_not_work_if_it_waits_for_a_core_when_it_wakes_up() {
        assert!(!works(0.002, 0.5, 0.0));
        assert!(works(0.3, 0.3, 0.0), "it computes");
        assert!(works(0.02, 0.98, 0.0), "it would compute");
        assert!(works(0.0, 0.0, 2e6));
    }

    /// If two threads share one core, each waits for it half of the time.
    #[test]
    fn threads_that_share_a_core_wait_for_it() {
        let (pid, over) = (Pid(std::process::id()), AtomicBool::new(false));
        let spin = || {
            // SAFETY: the set is a plain array of bits, all zero before one is set, and is read only during the call.
            unsafe {
                let mut set: libc::cpu_set_t = std::mem::zeroed();
                libc::CPU_SET(0, &mut set);
                libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
            }
            while !over.load(Relaxed) {
                std::hint::spin_loop();
            }
        };
        thread::scope(|scope| {
            scope.spawn(spin);
            scope.spawn(spin);
            let (mut cpus, until) = (Cpus::default(), Instant::now() + Duration::from_secs(30));
            let found = loop {
                let reading = cpus.read(Rank(0), pid, Moment::now()).map(|reading| reading.wait);
                let share = |one: &RankCpu| one.waited.seconds() / one.interval.seconds();
                if reading.as_ref().is_some_and(|one| (0.3..1.0).contains(&share(one))) {
                    break reading;
                }
                if Instant::now() > until {
                    break None;
                }
                thread::sleep(Duration::from_millis(50));
            };
            over.store(true, Relaxed);
            let found = found.expect("a thread that waits");
            assert!(!found.thread.is_empty() && !found.stopped, "{found:?}");
        });
    }

    /// The main threads of three processes: one computes, one writes and sleeps in between, and one waits.
    #[test]
    fn computing_and_writing_processes_are_busy_and_waiting_ones_are_not() {
        let mut cpus = Cpus::default();
        let mut busy = |program: &[&str]| {
            let mut child = std::process::Command::new(program[0]).args(&program[1..]).spawn().unwrap();
            let (pid, until) = (Pid(child.id()), Instant::now() + Duration::from_secs(30));
            // The processes that compute or write are read until they are busy, the waiting one for longer.
            let mut readings = Vec::new();
            while readings.last() != Some(&true) && readings.len() < 30 && Instant::now() < until {
                thread::sleep(Duration::from_millis(100));
                readings.extend(cpus.read(Rank(0), pid, Moment::now()).map(|reading| reading.is_busy));
            }
            child.kill().unwrap();
            child.wait().unwrap();
            readings.last() == Some(&true)
        };
        assert!(busy(&["python3", "-c", "while True: pass"]));
        let writes = "from time import sleep; file = open('/dev/null', 'wb', 0)
while True: file.write(bytes(1 << 20)); sleep(0.05)";
        assert!(busy(&["python3", "-c", writes]));
        assert!(!busy(&["sleep", "100"]));
    }

    #[test]
    fn a_process_that_is_gone_is_forgotten() {
        let mut cpus = Cpus::default();
        let gone = Pid(u32::MAX >> 1);
        assert_eq!(cpus.read(Rank(0), gone, Moment(1)), None);
        assert_eq!(cpus.read(Rank(0), gone, Moment(2)), None);
        assert!(cpus.0.is_empty());
    }
}
