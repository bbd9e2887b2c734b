//! Makes the functions of ranks from their captured operations, in a thread of its own: the poll loop waits
//! neither for the analysis of a rank nor keeps its operations.

mod arriving;

use std::{
    collections::VecDeque,
    sync::mpsc::{self, Receiver, RecvTimeoutError, SendError, Sender},
    thread,
    time::{Duration, Instant},
};

use arriving::Arriving;
use xpu_wire::frame::{CapturePart, PythonSamples, RankDigest, RankFunctions};

/// Captures of which functions are made. A viewer makes one or two at a time.
const WANTED: usize = 64;

/// Interval in which the thread looks for data that is too old.
const LOOK: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// The latest last.
    wanted: VecDeque<Wanted>,
    /// The thread, once it was needed.
    thread: Option<Thread>,
    /// Whether the log has that it ended early.
    is_end_logged: bool,
}

/// A capture, and whether Python's stacks are sampled meanwhile.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    number: u64,
    samples: bool,
}

#[derive(Debug)]
struct Thread {
    /// the poll loop --Data--> the thread
    data: Sender<Data>,
    /// the thread --`RankFunctions`--> the poll loop
    made: Receiver<RankFunctions>,
}

/// Data of a rank.
enum Data {
    /// A part, the rank's last digest, which names its communicators, and whether samples come too.
    Operations(CapturePart, Option<Box<RankDigest>>, bool),
    Samples(PythonSamples),
    /// The number of a capture that its viewer has ended.
    End(u64),
}

impl Functions {
    pub(crate) fn want(&mut self, number: u64) {
        if self.of(number).is_some() {
            return;
        }
        if self.wanted.len() >= WANTED {
            self.wanted.pop_front();
        }
        self.wanted.push_back(Wanted { number, samples: false });
    }

    /// Notes that Python's stacks are sampled during a capture.
    pub(crate) fn sampled(&mut self, number: u64) {
        self.wanted
            .iter_mut()
            .filter(|wanted| wanted.number == number)
            .for_each(|wanted| wanted.samples = true);
    }

    fn of(&self, number: u64) -> Option<Wanted> {
        self.wanted.iter().find(|wanted| wanted.number == number).copied()
    }

    /// Takes a part of such a capture. Gives other parts back, and all if there can be no thread: they travel.
    pub(crate) fn take(
        &mut self,
        part: CapturePart,
        digest: impl FnOnce(&CapturePart) -> Option<RankDigest>,
    ) -> Option<CapturePart> {
        let Some((wanted, thread)) = self.of(part.number).zip(self.thread()) else { return Some(part) };
        let digest = digest(&part).map(Box::new);
        let sent = thread.data.send(Data::Operations(part, digest, wanted.samples));
        match self.sent(sent)? {
            Data::Operations(part, ..) => Some(part),
            _ => None,
        }
    }

    pub(crate) fn take_samples(&mut self, part: PythonSamples) -> Option<PythonSamples> {
        let Some((_, thread)) = self.of(part.number).zip(self.thread()) else { return Some(part) };
        let sent = thread.data.send(Data::Samples(part));
        match self.sent(sent)? {
            Data::Samples(part) => Some(part),
            _ => None,
        }
    }

    /// Ends a capture: data that is not whole soon is dropped. Its viewer names the ranks that it lacks.
    pub(crate) fn end(&mut self, number: u64) {
        if let Some(thread) = self.of(number).and(self.thread.as_ref()) {
            let sent = thread.data.send(Data::End(number));
            self.sent(sent);
        }
    }

    /// Returns data that was not taken: the thread has ended early. The next data starts another one.
    fn sent(&mut self, sent: Result<(), SendError<Data>>) -> Option<Data> {
        let SendError(data) = sent.err()?;
        self.thread = None;
        if !std::mem::replace(&mut self.is_end_logged, true) {
            tracing::warn!("the thread that makes functions has ended early, and is started again");
        }
        Some(data)
    }

    fn thread(&mut self) -> Option<&Thread> {
        if self.thread.is_none() {
            match Thread::start() {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => tracing::warn!("operations are sent in place of functions: no thread: {error}"),
            }
        }
        self.thread.as_ref()
    }

    /// The functions that were made since the last call.
    pub(crate) fn made(&self) -> Vec<RankFunctions> {
        self.thread.iter().flat_map(|thread| thread.made.try_iter()).collect()
    }
}

impl Thread {
    fn start() -> std::io::Result<Self> {
        let (data, taken) = mpsc::channel();
        let (maker, made) = mpsc::channel();
        thread::Builder::new().name("functions".to_owned()).spawn(move || make(&taken, &maker))?;
        Ok(Self { data, made })
    }
}

/// Runs until the poll loop ends.
fn make(data: &Receiver<Data>, made: &Sender<RankFunctions>) {
    let mut arriving = Arriving::default();
    loop {
        let received = if arriving.is_empty() {
            data.recv().map_err(RecvTimeoutError::from)
        } else {
            data.recv_timeout(LOOK)
        };
        let functions = match received {
            Ok(data) => arriving.take(data, Instant::now()),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if functions.is_some_and(|functions| made.send(functions).is_err()) {
            return;
        }
        arriving.expire(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use xpu_wire::{
        frame::example::capture::{ORDER, part, samples},
        id::Rank,
    };

    use super::*;

    /// One of two parts.
    fn half(number: u32) -> CapturePart {
        let whole = part(3, 0);
        let middle = whole.operations.len() / 2;
        let (first, second) = whole.operations.split_at(middle);
        let operations = if number == 0 { first } else { second }.to_vec();
        let account = whole.account.clone().filter(|_| number == 0);
        CapturePart { part: number, parts: 2, account, operations, ..whole }
    }

    fn made(functions: &Functions) -> RankFunctions {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(made) = functions.made().pop() {
                return made;
            }
            assert!(Instant::now() < deadline, "nothing was made");
            thread::yield_now();
        }
    }

    #[test]
    fn the_functions_of_a_rank_are_made_once_all_its_parts_are_there() {
        let mut functions = Functions::default();
        assert!(functions.take(half(0), |_| None).is_some(), "no functions were requested");
        functions.want(ORDER.number);
        assert_eq!(functions.take(half(0), |_| None), None);
        assert_eq!(functions.take(half(1), |_| None), None);
        let of = made(&functions);
        assert_eq!((of.rank, of.number, of.steps, of.samples), (Rank(3), ORDER.number, 2, 0));
        assert!(of.functions.len() > 1 && of.collectives.len() == 1, "{of:?}");
    }

    #[test]
    fn sampled_functions_are_awaited() {
        let mut functions = Functions::default();
        functions.want(ORDER.number);
        functions.sampled(ORDER.number);
        assert_eq!(functions.take(half(0), |_| None), None);
        assert_eq!(functions.take(half(1), |_| None), None);
        assert_eq!(functions.take_samples(samples(3)), None);
        let of = made(&functions);
        assert!(of.samples > 0, "{of:?}");
    }

    #[test]
    fn a_thread_that_ended_early_is_started_again() {
        let mut functions = Functions::default();
        functions.want(ORDER.number);
        functions.thread = Some(Thread { data: mpsc::channel().0, made: mpsc::channel().1 });
        assert!(functions.take(half(0), |_| None).is_some(), "it travels");
        assert_eq!(functions.take(half(0), |_| None), None);
        assert_eq!(functions.take(half(1), |_| None), None);
        assert_eq!(made(&functions).rank, Rank(3));
    }
}
