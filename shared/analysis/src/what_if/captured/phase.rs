//! The kind of the compute between two launches: forward or backward, as far as the messages beside it show.
//!
//! A receive from the previous stage is the input of a forward, and a send to the next stage its result;
//! backwards go in the other direction. The last stage computes a forward and its backward without a message
//! between them, and the first stage in 1F1B a backward and the next forward. Such compute is divided by its
//! number of timed operations, in the proportion of the forwards and backwards that are between messages: those
//! of the same stage, or else of the first stage that has both.
//!
//! The first stage has no message before its first forward and after its last backward. What it computes there
//! beyond the usual number of operations is neither, such as an optimizer with GEMMs.

use super::{
    Kind, Refusal,
    cut::Cut,
    launches::{Hop, Name},
};

/// A part of the compute before a launch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Phase {
    pub(super) kind: Kind,
    /// The number of the microbatch among the stage's forwards or backwards.
    pub(super) number: usize,
    /// Its part of the whole forward or backward.
    pub(super) share: f64,
    /// Number of the timed operations before the launch with which it ends.
    pub(super) until: usize,
}

impl Phase {
    /// All compute before a launch that is neither a forward nor a backward.
    pub(super) const OTHER: Self = Self { kind: Kind::Compute, number: 0, share: 1.0, until: usize::MAX };
}

/// For each stage, the phases of the compute before each launch.
pub(super) type Phases = Vec<Vec<Vec<Phase>>>;

/// One kind of compute, or two kinds one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    One(Kind),
    Both([Kind; 2]),
    Other,
}

/// The messages beside a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Both,
    /// None before it: it begins the step.
    Behind,
    /// None behind it: it ends the step.
    Before,
}

/// Successive compute without messages in between.
#[derive(Clone, Debug)]
struct Chunk {
    does: Does,
    side: Side,
    /// The launches before which it is, and the number of its timed operations before each.
    counts: Vec<(usize, usize)>,
}

impl Chunk {
    fn timed(&self) -> usize {
        self.counts.iter().map(|(_, count)| count).sum()
    }
}

/// Number of timed operations of a forward and of a backward.
#[derive(Clone, Copy, Debug)]
struct Usual {
    forward: usize,
    backward: usize,
}

pub(super) fn phases(names: &[Vec<Name>], cuts: &[Vec<Cut>]) -> Result<Phases, Refusal> {
    let of_stages: Vec<Vec<Chunk>> =
        names.iter().zip(cuts).map(|(names, cuts)| chunks(names, cuts)).collect();
    let known: Vec<Option<Usual>> = of_stages.iter().map(|chunks| usual(chunks)).collect();
    let Some(any) = known.iter().flatten().next().copied() else {
        return Err(Refusal::NotPipeline("no stage has a forward and a backward with GEMMs".to_owned()));
    };
    let mut all = Vec::new();
    let mut of_first = None;
    for (stage, (chunks, names)) in of_stages.iter().zip(names).enumerate() {
        let mut dividing = Dividing::new(chunks, known[stage], any, names.len());
        for chunk in chunks {
            if dividing.divide(chunk).is_none() {
                return Err(Refusal::NotPipeline(format!(
                    "between a receive and a send, stage {stage} computes less than a forward and a backward (an interleaved pipeline, or an exchange of data as in context parallelism)"
                )));
            }
        }
        let first = *of_first.get_or_insert(dividing.counts);
        dividing.counts.check(stage, first)?;
        all.push(dividing.phases());
    }
    Ok(all)
}

/// The forwards and backwards of a stage in a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    forwards: usize,
    backwards: usize,
    /// By how many the backwards exceed the forwards at some point of the step. Their forwards were in the
    /// step before if a collective of all ranks divides the schedule.
    ahead: usize,
}

impl Counts {
    /// Counts one, and returns its number.
    fn next(&mut self, kind: Kind) -> usize {
        let number = if kind == Kind::ForwardCompute {
            self.forwards += 1;
            self.forwards
        } else {
            self.backwards += 1;
            self.backwards
        };
        self.ahead = self.ahead.max(self.backwards.saturating_sub(self.forwards));
        number - 1
    }

    /// Refuses a stage that does not compute as many microbatches as the first one, or in the other direction.
    fn check(self, stage: usize, first: Self) -> Result<(), Refusal> {
        let Self { forwards, backwards, ahead } = self;
        if (forwards, backwards) != (first.forwards, first.backwards) {
            return Err(Refusal::NotPipeline(format!(
                "in a step, stage 0 has {} forwards and {} backwards with GEMMs, and stage {stage} has {forwards} forwards and {backwards} backwards",
                first.forwards, first.backwards
            )));
        }
        if forwards != backwards {
            return Err(Refusal::NotPipeline(format!(
                "in a step, stage {stage} has {forwards} forwards and {backwards} backwards with GEMMs"
            )));
        }
        if ahead != first.ahead {
            return Err(Refusal::NotPipeline(format!(
                "stages 0 and {stage} exchange data, as in context parallelism, instead of passing it on in one direction"
            )));
        }
        Ok(())
    }
}

/// The compute of a stage between messages.
fn chunks(names: &[Name], cuts: &[Cut]) -> Vec<Chunk> {
    // Some operations may be untimed on some ranks.
    let count = |k: usize| cuts.iter().map(|cut| cut.parts[k].len()).max().unwrap_or(0);
    // The messages between the chunks, also before the first and behind the last.
    let mut messages: Vec<Vec<Hop>> = vec![Vec::new()];
    let mut all: Vec<Chunk> = Vec::new();
    let mut is_open = false;
    for (k, name) in names.iter().enumerate() {
        let timed = count(k);
        if timed > 0 && !is_open {
            all.push(Chunk { does: Does::Other, side: Side::Both, counts: Vec::new() });
            messages.push(Vec::new());
            is_open = true;
        }
        if let Some(chunk) = all.last_mut().filter(|_| timed > 0) {
            chunk.counts.push((k, timed));
        }
        if let (Some(behind), true) = (messages.last_mut(), !name.messages().is_empty()) {
            behind.extend(name.messages());
            is_open = false;
        }
    }
    for (chunk, messages) in all.iter_mut().zip(messages.windows(2)) {
        let [before, behind] = messages else { continue };
        chunk.does = does(before, behind);
        chunk.side = match (before.is_empty(), behind.is_empty()) {
            (true, false) => Side::Behind,
            (false, true) => Side::Before,
            _ => Side::Both,
        };
    }
    all
}

/// What is computed between these messages.
fn does(before: &[Hop], after: &[Hop]) -> Does {
    let begins = only(before.iter().filter(|hop| !hop.is_send));
    let ends = only(after.iter().filter(|hop| hop.is_send));
    match (begins, ends) {
        (Some(begins), Some(ends)) if begins != ends => Does::Both([begins, ends]),
        (_, Some(kind)) | (Some(kind), None) => Does::One(kind),
        (None, None) => Does::Other,
    }
}

/// The kind of compute that these messages belong to, if all belong to one.
fn only<'a>(hops: impl Iterator<Item = &'a Hop>) -> Option<Kind> {
    let mut kinds =
        hops.map(|hop| if hop.is_forward() { Kind::ForwardCompute } else { Kind::BackwardCompute });
    let first = kinds.next()?;
    kinds.all(|kind| kind == first).then_some(first)
}

/// The numbers of timed operations of forwards or of backwards between messages, in ascending order.
fn between_messages(chunks: &[Chunk], kind: Kind) -> Vec<usize> {
    let of_kind = chunks.iter().filter(|chunk| chunk.does == Does::One(kind) && chunk.side == Side::Both);
    let mut all: Vec<usize> = of_kind.map(Chunk::timed).collect();
    all.sort_unstable();
    all
}

fn usual(chunks: &[Chunk]) -> Option<Usual> {
    let of = |kind: Kind| {
        let between = between_messages(chunks, kind);
        let at_an_end = || chunks.iter().find(|chunk| chunk.does == Does::One(kind)).map(Chunk::timed);
        between.get(between.len() / 2).copied().or_else(at_an_end)
    };
    Some(Usual { forward: of(Kind::ForwardCompute)?, backward: of(Kind::BackwardCompute)? })
}

/// How many timed operations at the start or the end of a step are neither forward nor backward. Their number
/// may vary by microbatch, so those up to the largest known number all count.
fn beyond_the_usual(chunks: &[Chunk], chunk: &Chunk, kind: Kind) -> usize {
    let between = between_messages(chunks, kind);
    match between.last() {
        Some(most) if chunk.timed() > *most => chunk.timed() - between[between.len() / 2],
        _ => 0,
    }
}

/// The phases of a stage, as far as its chunks are divided.
struct Dividing<'a> {
    chunks: &'a [Chunk],
    /// Of this stage, and of the first one that has both kinds.
    own: Option<Usual>,
    any: Usual,
    counts: Counts,
    /// Those before each launch.
    found: Vec<Vec<Phase>>,
}

impl<'a> Dividing<'a> {
    fn new(chunks: &'a [Chunk], own: Option<Usual>, any: Usual, launches: usize) -> Self {
        Self { chunks, own, any, counts: Counts::default(), found: vec![Vec::new(); launches] }
    }

    /// Adds the phases of a chunk. `None` if it is too short for a forward and a backward.
    fn divide(&mut self, chunk: &Chunk) -> Option<()> {
        let mut counts = chunk.counts.iter().copied();
        let (mut k, mut left) = counts.next()?;
        let mut until = 0;
        for (kind, of_kind) in self.parts(chunk)? {
            let number = if kind == Kind::Compute { 0 } else { self.counts.next(kind) };
            let mut needed = of_kind;
            while needed > 0 {
                if left == 0 {
                    ((k, left), until) = (counts.next()?, 0);
                }
                let taken = left.min(needed);
                (left, needed, until) = (left - taken, needed - taken, until + taken);
                let share = if kind == Kind::Compute { 1.0 } else { taken as f64 / of_kind as f64 };
                self.found[k].push(Phase { kind, number, share, until });
            }
        }
        Some(())
    }

    /// The kinds of compute of a chunk in their order, and the number of timed operations of each.
    fn parts(&self, chunk: &Chunk) -> Option<Vec<(Kind, usize)>> {
        let timed = chunk.timed();
        Some(match chunk.does {
            Does::Other => vec![(Kind::Compute, timed)],
            Does::One(kind) => {
                let beyond = beyond_the_usual(self.chunks, chunk, kind);
                match chunk.side {
                    Side::Behind if beyond > 0 => vec![(Kind::Compute, beyond), (kind, timed - beyond)],
                    Side::Before if beyond > 0 => vec![(kind, timed - beyond), (Kind::Compute, beyond)],
                    _ => vec![(kind, timed)],
                }
            }
            Does::Both([first, second]) => {
                if self.own.is_some_and(|own| timed <= own.forward.max(own.backward)) {
                    return None;
                }
                let Usual { forward, backward } = self.own.unwrap_or(self.any);
                let part = if first == Kind::ForwardCompute { forward } else { backward };
                let of_first = (timed as f64 * part as f64 / (forward + backward) as f64).round() as usize;
                if !(1..timed).contains(&of_first) {
                    return None;
                }
                vec![(first, of_first), (second, timed - of_first)]
            }
        })
    }

    fn phases(mut self) -> Vec<Vec<Phase>> {
        for phases in &mut self.found {
            if phases.is_empty() {
                phases.push(Phase::OTHER);
            }
        }
        self.found
    }
}
