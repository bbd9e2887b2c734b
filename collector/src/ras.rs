//! Asks NCCL's RAS service about a job when the job hangs or a user requests it. RAS is a source independent
//! of the hook.
//!
//! NCCL has a thread for RAS in each process. It answers even while the program waits, and an answer of any
//! process covers the whole job. A separate thread asks, so the poll loop never waits.
//!
//! ```text
//! Request::Ras ─▶ Target ──thread: address, version, client, answer──▶ Body::Ras, and unchanged ─▶ ras.json
//! ```

mod address;
mod answer;
mod client;
mod library;

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc::{self, Receiver, TryRecvError},
    },
    thread,
    time::{Duration, Instant},
};

use xpu_wire::{
    frame::RasReport,
    id::{JobName, Pid},
    unit::Moment,
};

use crate::address::Address;
use address::{NotQueried, RasAddress};
pub(crate) use answer::Answer;

/// Largest number of threads that ask at the same time, each about a job.
const AT_ONCE: usize = 8;

/// Largest number of viewers that wait for the same answer.
const VIEWERS: usize = 64;

/// An answer this recent is sent again, so that viewers that ask in a loop do not make RAS collect in a loop.
const RECENT: Duration = Duration::from_secs(2);

/// After this time, no answer is expected any more. This is longer than the client's own limit.
const LIMIT: Duration = Duration::from_secs(40);

/// Number of answers that wait for the thread that keeps them on disk.
const KEPT: usize = 4;

/// A job whose RAS will be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub job: JobName,
    /// The job's living processes here, the requested rank's first.
    pub pids: Vec<Pid>,
    /// Whether a rank of any job on this host is creating a communicator. In some versions of NCCL, a process
    /// that is asked meanwhile crashes, and at a shared port it is unknown beforehand which process answers.
    pub creating: bool,
}

/// The result, and its recipients.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Answered {
    pub viewers: Vec<Address>,
    pub report: RasReport,
    /// The unchanged answer; empty if there was none.
    pub raw: Vec<u8>,
}

#[derive(Debug)]
struct Asking {
    job: JobName,
    viewers: Vec<Address>,
    answer: Receiver<(RasReport, Vec<u8>)>,
    since: Instant,
}

/// All questions in progress.
#[derive(Debug, Default)]
pub(crate) struct Ras {
    asking: Vec<Asking>,
    recent: BTreeMap<JobName, (Instant, RasReport, Vec<u8>)>,
    /// Each thread holds a clone. So an abandoned thread, which may hang in a name lookup, still counts.
    threads: Arc<()>,
    /// Whether a rank on this host is creating a communicator. Read before each question, because a thread
    /// may ask several processes.
    creating: Arc<AtomicBool>,
}

impl Ras {
    /// Takes a request. Returns the result at once if it is known, or if there will be none.
    pub(crate) fn want(&mut self, target: Target, viewer: &Address, now: Instant) -> Option<Answered> {
        let job = target.job.clone();
        let at_once = |report, raw| Some(Answered { viewers: vec![viewer.clone()], report, raw });
        self.forget(now);
        if let Some((_, report, raw)) = self.recent.get(&job) {
            return at_once(report.clone(), raw.clone());
        }
        if let Some(asking) = self.asking.iter_mut().find(|asking| asking.job == target.job) {
            if asking.viewers.len() < VIEWERS && !asking.viewers.contains(viewer) {
                asking.viewers.push(viewer.clone());
            }
            return None;
        }
        if Arc::strong_count(&self.threads) > AT_ONCE {
            let why = format!("RAS of {AT_ONCE} jobs is being asked: try again");
            return at_once(RasReport::unanswered(job, why), Vec::new());
        }
        let (answer_tx, answer) = mpsc::channel();
        self.note(target.creating);
        let (counted, creating) = (Arc::clone(&self.threads), Arc::clone(&self.creating));
        let started = thread::Builder::new().name("ras".to_owned()).spawn(move || {
            let answer = ask(&target, &creating);
            drop(counted);
            // If the thread took too long, the receiver is gone.
            let _ = answer_tx.send(answer);
        });
        if let Err(error) = started {
            let why = format!("cannot start a thread to ask it: {error}");
            return at_once(RasReport::unanswered(job, why), Vec::new());
        }
        self.asking.push(Asking { job, viewers: vec![viewer.clone()], answer, since: now });
        None
    }

    pub(crate) fn is_asking(&self) -> bool {
        !self.asking.is_empty()
    }

    /// Notes whether a rank on this host, of any job, is creating a communicator now.
    pub(crate) fn note(&self, creating: bool) {
        self.creating.store(creating, Relaxed);
    }

    /// Takes finished answers. Never blocks.
    pub(crate) fn turn(&mut self, now: Instant) -> Vec<Answered> {
        self.forget(now);
        let mut answered = Vec::new();
        for asking in std::mem::take(&mut self.asking) {
            let none = |why: &str| (RasReport::unanswered(asking.job.clone(), why.to_owned()), Vec::new());
            let (report, raw) = match asking.answer.try_recv() {
                Ok(answer) => answer,
                Err(TryRecvError::Empty) if now.duration_since(asking.since) < LIMIT => {
                    self.asking.push(asking);
                    continue;
                }
                Err(TryRecvError::Empty) => none("it did not answer in time"),
                Err(TryRecvError::Disconnected) => none("its answer cannot be read"),
            };
            self.recent.insert(asking.job, (now, report.clone(), raw.clone()));
            answered.push(Answered { viewers: asking.viewers, report, raw });
        }
        answered
    }

    fn forget(&mut self, now: Instant) {
        self.recent.retain(|_, (at, ..)| now.duration_since(*at) < RECENT);
    }
}

/// Asks RAS. Runs in a separate thread, because it reads files of processes and the network.
fn ask(target: &Target, creating: &AtomicBool) -> (RasReport, Vec<u8>) {
    let asked_at = Moment::now();
    let report = RasReport { asked_at, ..RasReport::unanswered(target.job.clone(), String::new()) };
    let address = match RasAddress::of(target) {
        Ok(address) => address,
        Err(why) => return (RasReport { why: why.to_string(), ..report }, Vec::new()),
    };
    let report = RasReport { address: address.to_string(), ..report };
    let why_not = target.creating.then_some(NotQueried::Creating);
    let why_not = why_not.or_else(|| library::version(&target.pids).and_then(NotQueried::of_version));
    if let Some(why) = why_not {
        return (RasReport { why: why.to_string(), ..report }, Vec::new());
    }
    let is_of_job = |answer: &Answer| answer.is_of(&target.pids);
    match client::ask(&address, is_of_job, || creating.load(Relaxed), client::Limits::default()) {
        Ok((answer, raw)) => (answer.into_report(report), raw),
        Err(why) => (RasReport { why: why.at(&address), ..report }, Vec::new()),
    }
}

/// The last unchanged answers, for the thread that keeps them on disk.
#[derive(Clone, Debug, Default)]
pub(crate) struct RawAnswers(Arc<Mutex<BTreeMap<JobName, Vec<u8>>>>);

impl RawAnswers {
    pub(crate) fn put(&self, job: &JobName, raw: Vec<u8>) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= KEPT && !answers.contains_key(job) {
            answers.pop_first();
        }
        answers.insert(job.clone(), raw);
    }

    pub(crate) fn take(&self, job: &JobName) -> Option<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(job)
    }
}

#[cfg(test)]
mod tests;
