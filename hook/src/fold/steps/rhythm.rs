//! The steps in one sequence of operations, found by their repetition.
//!
//! All that is decided follows from the operations and their order, never from the clock: ranks that see the same sequence find
//! the same period, the same beginning, and count alike.

use std::collections::VecDeque;

use super::period::{self, Bar, Likeness, Op};

/// Operations remembered: four repetitions of a step of some three thousand.
const REMEMBERED: usize = 16_384;

/// Operations after which it is looked again for the first time; later, a quarter more.
const FIRST_LOOK: u64 = 24;

/// Operations without a strict period after which one without counts of products will do.
const STRICT: u64 = 512;

/// A step that comes late more often than once in so many is no step, but a part of one: micro-batches before one more
/// operation of the optimizer. An operation more now and then is a log entry or a check.
const SELDOM: u64 = 8;

/// Periods whose steps are counted.
const COUNTS: usize = 8;

/// Steps after which a period is worth telling of.
const WORTH_TELLING: u64 = 4;

#[derive(Debug)]
pub(super) struct Rhythm {
    history: VecDeque<Op>,
    /// Operations so far, and of them those before the one where the search began.
    seen: u64,
    searching_from: u64,
    /// When to look next.
    look_at: u64,
    bar: Bar,
    locked: Option<Locked>,
    /// Steps of earlier repetitions, by their period: an evaluation interrupts the training, and its passes are no steps.
    counts: Vec<(usize, u64)>,
}

/// A period that is believed in.
#[derive(Clone, Copy, Debug)]
struct Locked {
    lag: usize,
    how: Likeness,
    /// What a step begins with.
    first: Op,
    /// Operations since then.
    since: usize,
    /// When it was; `None` before the first that was seen to begin.
    began: Option<u64>,
    /// Steps since the repetition began.
    steps: u64,
    /// The step that came late last.
    late: Option<u64>,
    /// Operations of this step unlike those of the last one, and steps in which half of them were.
    unlike: usize,
    strange: u32,
}

/// The end of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    /// Steps completed.
    pub(super) completed: u64,
    pub(super) at: u64,
    /// How long it was, where its beginning was seen.
    pub(super) took: Option<u64>,
}

impl Rhythm {
    /// `None` if there is no memory for it.
    pub(super) fn new() -> Option<Self> {
        let mut history = VecDeque::new();
        history.try_reserve_exact(REMEMBERED).ok()?;
        Some(Self {
            history,
            seen: 0,
            searching_from: 0,
            look_at: FIRST_LOOK,
            bar: Bar::NONE,
            locked: None,
            counts: Vec::new(),
        })
    }

    pub(super) fn memory(&self) -> usize {
        self.history.capacity() * size_of::<Op>()
    }

    /// Operations in a step, once that is known.
    pub(super) fn period(&self) -> Option<usize> {
        self.locked.filter(|locked| locked.steps >= WORTH_TELLING).map(|locked| locked.lag)
    }

    /// A number that every repetition has for itself.
    pub(super) fn repetition(&self) -> u64 {
        self.searching_from
    }

    /// What repeats now is the step: after an interruption it is recognised soon.
    pub(super) fn trust(&mut self) {
        if let Some(locked) = self.locked {
            self.bar.trust(locked.lag);
        }
    }

    /// The next operation, begun at this time.
    pub(super) fn take(&mut self, op: Op, at: u64) -> Option<Ended> {
        if self.history.len() == REMEMBERED {
            self.history.pop_front();
        }
        self.history.push_back(op);
        self.seen += 1;
        let Some(locked) = self.locked else {
            if self.seen >= self.look_at {
                self.look();
            }
            return None;
        };
        let before = self.history.len().checked_sub(1 + locked.lag).map(|at| self.history[at]);
        self.follow(locked, op, before, at)
    }

    fn follow(&mut self, mut locked: Locked, op: Op, before: Option<Op>, at: u64) -> Option<Ended> {
        locked.since += 1;
        locked.unlike += usize::from(before.is_none_or(|before| !locked.how.alike(op, before)));
        let begins = locked.since >= locked.lag && locked.how.alike(op, locked.first);
        if !begins {
            let overdue = locked.since > 2 * locked.lag;
            self.locked = Some(locked);
            if overdue {
                self.lose(locked);
            }
            return None;
        }
        locked.steps += 1;
        let late = locked.since > locked.lag;
        let often =
            late && locked.late.replace(locked.steps).is_some_and(|last| locked.steps - last < SELDOM);
        locked.strange = if locked.unlike * 2 > locked.lag { locked.strange + 1 } else { 0 };
        // Of one that is late by half, an end was missed.
        let whole = locked.since - locked.lag <= locked.lag / 2;
        let took = locked.began.replace(at).filter(|_| whole).map(|began| at.saturating_sub(began));
        (locked.since, locked.unlike) = (0, 0);
        self.locked = Some(locked);
        if often || locked.strange >= 2 {
            self.lose(locked);
            return None;
        }
        let told = locked.steps >= WORTH_TELLING;
        told.then(|| Ended { completed: self.before(locked.lag) + locked.steps, at, took })
    }

    /// The repetition is over: looks for the next one.
    fn lose(&mut self, locked: Locked) {
        self.locked = None;
        self.bar.raise(locked.lag);
        let steps = self.before(locked.lag) + locked.steps;
        self.counts.retain(|&(lag, _)| lag != locked.lag);
        self.counts.push((locked.lag, steps));
        if self.counts.len() > COUNTS {
            self.counts.remove(0);
        }
        self.searching_from = self.seen;
        self.look_at = self.seen + FIRST_LOOK;
    }

    /// Steps of this period in earlier repetitions.
    fn before(&self, lag: usize) -> u64 {
        self.counts.iter().find(|&&(counted, _)| counted == lag).map_or(0, |&(_, steps)| steps)
    }

    fn look(&mut self) {
        let searched = self.seen - self.searching_from;
        self.look_at = self.seen + (searched / 4).max(FIRST_LOOK / 4);
        let history = &*self.history.make_contiguous();
        let find = |how| period::find(history, how, self.bar).map(|lag| (lag, how));
        let loose = || (searched >= STRICT).then(|| find(Likeness::Loose)).flatten();
        let Some((lag, how)) = find(Likeness::Strict).or_else(loose) else { return };
        let last = &history[history.len() - lag..];
        let begins = period::beginning(last, how);
        let since = lag - 1 - begins;
        // Steps of this repetition that began before: but not those told of already.
        let known = (period::run(history, how, lag) + lag).min(searched.max(lag as u64) as usize);
        let steps = (known.saturating_sub(1 + since) / lag) as u64;
        self.locked = Some(Locked {
            lag,
            how,
            first: last[begins],
            since,
            began: None,
            steps,
            late: None,
            unlike: 0,
            strange: 0,
        });
    }
}

#[cfg(test)]
mod tests;
