//! Makes the functions of ranks from their captured operations, in a thread of its own: the poll loop waits
//! neither for the analysis of a rank nor keeps its operations.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::mpsc::{self, Receiver, SendError, Sender},
    thread,
};

use xpu_analysis::{
    behaviour,
    capture::{Capture, RankCapture, Sampled},
};
use xpu_wire::{
    frame::{
        Body, CaptureOrder, CapturePart, CaptureSheet, Frame, HostDigest, PythonSamples, RankDigest,
        RankFunctions,
    },
    id::{HostName, JobName, Rank, Step},
    unit::{Moment, Nanoseconds},
};

/// Captures of which functions are made. A viewer makes one or two at a time.
const WANTED: usize = 64;

/// Ranks whose data arrives at the same time. A host has tens.
const RANKS: usize = 256;

#[derive(Debug, Default)]
pub(crate) struct Functions {
    /// The latest last.
    wanted: VecDeque<Wanted>,
    /// The thread, once it was needed.
    thread: Option<Thread>,
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
        match thread.data.send(Data::Operations(part, digest, wanted.samples)) {
            Err(SendError(Data::Operations(part, ..))) => Some(part),
            _ => None,
        }
    }

    pub(crate) fn take_samples(&mut self, part: PythonSamples) -> Option<PythonSamples> {
        let Some((_, thread)) = self.of(part.number).zip(self.thread()) else { return Some(part) };
        match thread.data.send(Data::Samples(part)) {
            Err(SendError(Data::Samples(part))) => Some(part),
            _ => None,
        }
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

/// The data of a rank that has arrived so far.
struct Coming {
    /// The number of the capture. A rank has one at a time, so a new one replaces one that did not end.
    number: u64,
    capture: Capture,
    awaits_samples: bool,
}

impl Coming {
    fn is_whole(&self, rank: Rank) -> bool {
        let has_ended = |sampled: &Sampled| sampled.account.is_some();
        self.capture.ranks.get(&rank).is_some_and(RankCapture::is_whole)
            && (!self.awaits_samples || self.capture.sampled.get(&rank).is_some_and(has_ended))
    }
}

/// Runs until the poll loop ends.
fn make(data: &Receiver<Data>, made: &Sender<RankFunctions>) {
    let mut coming: BTreeMap<(JobName, Rank), Coming> = BTreeMap::new();
    for data in data {
        let (number, job, rank) = match &data {
            Data::Operations(part, ..) => (part.number, part.job.clone(), part.rank),
            Data::Samples(part) => (part.number, part.job.clone(), part.rank),
        };
        let place = (job, rank);
        coming.retain(|known, its| *known != place || its.number == number);
        if coming.len() >= RANKS && !coming.contains_key(&place) {
            coming.pop_first();
        }
        let its = coming.entry(place.clone()).or_insert_with(|| begin(number, &place.0, rank));
        match data {
            Data::Operations(part, digest, samples) => {
                its.awaits_samples = samples;
                let ranks = digest.into_iter().map(|digest| *digest).collect();
                take(
                    &mut its.capture,
                    Body::Digest(HostDigest { job: place.0.clone(), ranks, turned_away: 0 }),
                );
                take(&mut its.capture, Body::CapturePart(part));
            }
            Data::Samples(part) => take(&mut its.capture, Body::PythonSamples(part)),
        }
        if its.is_whole(rank)
            && let Some(Coming { capture, .. }) = coming.remove(&place)
        {
            let functions = behaviour::functions(&capture, rank).map(behaviour::brief);
            if functions.is_some_and(|functions| made.send(functions).is_err()) {
                return;
            }
        }
    }
}

/// A capture of one rank, before its data.
fn begin(number: u64, job: &JobName, rank: Rank) -> Coming {
    let order = CaptureOrder {
        number,
        first: Step(0),
        steps: 0,
        limit: Nanoseconds(0),
        before: 0,
        activity: false,
        functions: false,
    };
    let (job, ranks) = (job.clone(), vec![rank]);
    let mut capture = Capture::default();
    let sheet = CaptureSheet { order, job, ranks, closed: false, missing: Vec::new(), stall: None };
    take(&mut capture, Body::CaptureSheet(sheet));
    Coming { number, capture, awaits_samples: false }
}

fn take(capture: &mut Capture, body: Body) {
    capture.take(&Frame { host: HostName::default(), number: 0, now: Moment(0), lost: 0, body });
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use xpu_wire::frame::example::capture::{ORDER, part, samples};

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
}
