//! After how many operations a sequence repeats.

/// Repetitions that a period is believed on.
const FEW: usize = 4;

/// Operations a period is believed on at least: few repetitions of very little happen by chance.
const FEWEST: usize = 24;

/// Of so many operations in few repetitions one may differ.
const TOLERATED_IN: usize = 20;

/// Repetitions asked for at most of what has misled before: the layers of most models.
const MOST: usize = 64;

/// One operation, as far as it tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Op {
    /// Products launched between the one before it and this one.
    pub(super) gemms: u32,
    /// A hash of what it is.
    pub(super) name: u32,
}

/// Whether the products between two operations count. A model whose products differ from step to step is only
/// recognised without them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Likeness {
    Strict,
    Loose,
}

impl Likeness {
    pub(super) fn alike(self, a: Op, b: Op) -> bool {
        a.name == b.name && (self == Self::Loose || a.gemms == b.gemms)
    }

    /// The operation without what does not count.
    fn seen(self, op: Op) -> Op {
        if self == Self::Loose { Op { gemms: 0, ..op } } else { op }
    }
}

/// What is asked for before a period is believed. A run of equal layers repeats too, within every step: a period that did not
/// last raises the bar for itself and all that are shorter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bar {
    misled: usize,
    repetitions: usize,
    /// A period that has shown that it is the step's.
    trusted: Option<usize>,
}

impl Bar {
    pub(super) const NONE: Self = Self { misled: 0, repetitions: FEW, trusted: None };

    pub(super) fn trust(&mut self, period: usize) {
        self.trusted = Some(period);
    }

    pub(super) fn raise(&mut self, period: usize) {
        if self.trusted == Some(period) {
            return;
        }
        self.misled = self.misled.max(period);
        self.repetitions = (2 * self.repetitions).min(MOST);
    }

    /// Operations that must repeat, and how many of them may differ.
    fn window(self, lag: usize) -> (usize, usize) {
        if lag <= self.misled && self.repetitions > FEW && self.trusted != Some(lag) {
            return ((self.repetitions * lag).max(FEWEST), 0);
        }
        let window = (FEW * lag).max(FEWEST);
        (window, window / TOLERATED_IN)
    }
}

/// The period of the end of `history`: the one that is trusted, else the shortest, unless a longer one explains much more.
pub(super) fn find(history: &[Op], how: Likeness, bar: Bar) -> Option<usize> {
    let longest = history.len() / (FEW + 1);
    let repeats = |lag: usize, (window, tolerated): (usize, usize)| {
        let differing = agreement(history, how, lag).take(window).filter(|alike| !alike);
        window + lag <= history.len() && differing.take(tolerated + 1).count() <= tolerated
    };
    if let Some(trusted) = bar.trusted.filter(|&lag| lag <= longest && repeats(lag, bar.window(lag))) {
        return Some(trusted);
    }
    let shortest = (1..=longest).find(|&lag| repeats(lag, bar.window(lag)))?;
    // Equal layers repeat, and what they make up repeats for longer.
    let explained = run(history, how, shortest) + shortest;
    let longer = |&lag: &usize| run(history, how, lag) >= (FEW * lag).max(2 * explained);
    let period = (shortest + 1..=longest).find(longer).unwrap_or(shortest);
    // Several of a shorter period that is not believed yet are no period: it explains as much, but for where it begins anew.
    let window = FEW * period;
    let differing = |lag: usize| agreement(history, how, lag).take(window).filter(|alike| !alike).count();
    let unexplained = differing(period);
    let is_part = |part: usize| period.is_multiple_of(part) && differing(part) <= unexplained + part;
    (!(1..=period / 2).any(is_part)).then_some(period)
}

/// How many operations at the end of `history` are each like the one a period before.
pub(super) fn run(history: &[Op], how: Likeness, lag: usize) -> usize {
    agreement(history, how, lag).take_while(|&alike| alike).count()
}

/// From the end on, whether each operation is like the one a period before.
fn agreement(history: &[Op], how: Likeness, lag: usize) -> impl Iterator<Item = bool> {
    let earlier = history[..history.len() - lag].iter().rev();
    history.iter().rev().zip(earlier).map(move |(&a, &b)| how.alike(a, b))
}

/// Where in a period a step begins: before the operation with the most products in front of it. Every rank that sees the same
/// operations finds the same place, wherever it began to look.
pub(super) fn beginning(period: &[Op], how: Likeness) -> usize {
    let rotated = |at: usize| period[at..].iter().chain(&period[..at]).map(|&op| how.seen(op));
    (0..period.len()).max_by(|&a, &b| rotated(a).cmp(rotated(b))).unwrap_or(0)
}
