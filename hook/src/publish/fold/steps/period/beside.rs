//! The launches outside of a period's repetitions. They distinguish a step from a part of a step.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Candidate, FEW, FIGURE, Judgement, Log, forward};
use crate::observe::launches::{Kind, Launch};

/// Repetitions that make up more than this fraction of all launches, with other GEMMs at times, may be
/// training with evaluations.
const MOSTLY: f64 = 0.8;

/// Kernels with fewer threads, or with a smaller fraction of a period's threads, belong to a log entry, not
/// to an optimizer.
const LIGHT: f64 = 4096.0;
const LIGHT_SHARE: f64 = 0.0002;

/// Launches that occur less than once in this many repetitions are not a part of the step: launches without
/// GEMMs, and with GEMMs.
const SELDOM: f64 = 256.0;
const SELDOM_WITH_GEMMS: f64 = 32.0;

/// Sums up the launches outside of a period, between two positions in the log. Each launch comes with its
/// name at launch; `known` are the names within the period.
pub(super) fn beside<L: Iterator<Item = (Launch, u32)>>(
    log: &Log,
    Candidate { sums, segments }: &Candidate,
    known: &HashMap<u32, (Kind, usize)>,
    look: impl Fn(usize, usize) -> Option<L>,
) -> Option<Beside> {
    let events = log.events();
    let first = segments.iter().position(|&(from, to)| look(from, to).is_some())?;
    let segments = &segments[first..];
    let (from, to) = segments[segments.len() / 2];
    let mut inside: HashMap<u32, (Kind, usize)> = HashMap::new();
    let mut forms: HashSet<u32> = HashSet::new();
    let mut gemms = Vec::new();
    for (launch, _) in look(from, to)? {
        inside.entry(launch.name).or_insert((launch.kind, 0)).1 += 1;
        forms.insert(launch.form);
        gemms.extend((launch.kind == Kind::Gemm).then_some(launch));
    }
    let threads = (events[to].threads - events[from].threads).max(1.0);
    let mut found = Beside { repetitions: segments.len(), ..Beside::default() };
    found.is_backward = forward::is_backward_alone(gemms.iter());
    for (occasion, pair) in segments.windows(2).enumerate().filter(|(_, pair)| pair[0].1 < pair[1].0) {
        let (from, to) = (pair[0].1, pair[1].0);
        let Some(launches) = look(from, to) else { continue };
        let mut known_counts: HashMap<u32, usize> = HashMap::new();
        let mut strangers = Vec::new();
        // GEMMs so far, GEMMs before the last collective, and whether there were GEMMs between two
        // collectives.
        let (mut gemms, mut summed_at, mut in_turn) = (0, None, false);
        for (launch, original) in launches {
            match launch.kind {
                Kind::Gemm => gemms += 1,
                Kind::Collective if !inside.contains_key(&launch.name) && launch.weight >= FIGURE => {
                    in_turn |= summed_at.is_some_and(|before| before < gemms);
                    summed_at = Some(gemms);
                }
                _ => {}
            }
            if inside.contains_key(&launch.name) {
                *known_counts.entry(launch.name).or_default() += 1;
            } else if !known.contains_key(&original) {
                strangers.push(launch);
            }
        }
        let times =
            |(name, &(_, count)): (&u32, &(Kind, usize))| known_counts.get(name).unwrap_or(&0) / count;
        let whole = inside.iter().map(times).min().unwrap_or(0) as u32;
        let varied = varied(&inside, &known_counts, whole as usize);
        // If GEMMs of the period also occur outside of it, as in an evaluation, most kernels belong to the
        // evaluation.
        let evaluates = events[to].before.since(events[from].before).gemms > whole * sums.gemms;
        found.evaluations += usize::from(evaluates);
        let surplus = events[to].threads - events[from].threads - f64::from(whole) * threads;
        let (mut kernels, mut collectives, mut heavy) = (0, 0, 0);
        for launch in strangers {
            match launch.kind {
                Kind::Gemm | Kind::Graph => {
                    found.with_gemms.insert(occasion);
                    found.unlike |= !forms.contains(&launch.form);
                }
                Kind::Collective => {
                    collectives += 1;
                    if launch.weight >= FIGURE {
                        found.without.insert(occasion);
                    }
                }
                Kind::Kernel if evaluates => heavy += usize::from(launch.weight as f64 >= LIGHT),
                Kind::Kernel if surplus >= (LIGHT_SHARE * threads).max(LIGHT) => {
                    found.without.insert(occasion);
                    kernels += 1;
                }
                Kind::Kernel | Kind::Copy => {}
            }
        }
        // Gradients are summed while other gradients are computed. Sums in direct succession, each with a
        // kernel that divides it, may also be an occasional average of the weights.
        found.updates |= in_turn || kernels > FEW + collectives;
        if varied && heavy > FEW && !found.with_gemms.contains(&occasion) {
            found.variants.insert(occasion);
        }
    }
    found.without.retain(|occasion| !found.with_gemms.contains(occasion));
    found.inside = inside;
    Some(found)
}

/// Whether the GEMMs outside of `whole` repetitions are exactly those of further repetitions. An evaluation
/// lacks the GEMMs of the backward pass, and a second backward pass lacks those of the forward pass.
fn varied(inside: &HashMap<u32, (Kind, usize)>, launched: &HashMap<u32, usize>, whole: usize) -> bool {
    let gemms = inside.iter().filter(|(_, (kind, _))| *kind == Kind::Gemm);
    let mut others = gemms.map(|(name, &(_, count))| {
        let rest = launched.get(name).unwrap_or(&0) - whole * count;
        rest.is_multiple_of(count).then_some(rest / count)
    });
    let Some(Some(first)) = others.next() else { return false };
    first > 0 && others.all(|other| other == Some(first))
}

/// The occasions on which launches outside of a period are more than a log entry. Each occasion is the index
/// of a gap between repetitions.
#[derive(Debug, Default)]
pub(super) struct Beside {
    repetitions: usize,
    with_gemms: BTreeSet<usize>,
    without: BTreeSet<usize>,
    /// Occasions with a repetition that lacks some launches but no GEMMs, and has other launches as large as
    /// an update. This is the first of several micro-batches, which has no earlier gradients to add to.
    variants: BTreeSet<usize>,
    /// Number of occasions with more of the period's GEMMs than its whole repetitions have.
    evaluations: usize,
    /// Whether the period is a part of a backward pass.
    is_backward: bool,
    /// Whether some of the launches without GEMMs are more than a log entry.
    pub(super) updates: bool,
    /// Whether some GEMMs outside of the period have forms that are absent from it.
    pub(super) unlike: bool,
    /// The contents of the period, with counts.
    pub(super) inside: HashMap<u32, (Kind, usize)>,
}

impl Beside {
    pub(super) fn occasions(&self) -> usize {
        self.with_gemms.len() + self.without.len() + self.variants.len()
    }

    pub(super) fn has_graphs(&self) -> bool {
        self.inside.values().any(|&(kind, _)| kind == Kind::Graph)
    }

    /// Whether one of several repetitions has other launches.
    pub(super) fn varies(&self) -> bool {
        self.repetitions as f64 / self.variants.len() as f64 <= SELDOM_WITH_GEMMS
    }

    /// Whether launches that look like evaluations are the forward pass of each step.
    pub(super) fn lacks_forward(&self) -> bool {
        self.is_backward && self.repetitions as f64 / self.evaluations as f64 <= SELDOM_WITH_GEMMS
    }

    /// The verdict. `covered` is the fraction of all launches that the repetitions make up.
    pub(super) fn judge(self, covered: f64, is_plain: bool, unlike: bool) -> Judgement {
        let apart = |occasions: &BTreeSet<usize>| self.repetitions as f64 / occasions.len() as f64;
        let often = apart(&self.without) <= SELDOM;
        let often_with_gemms = apart(&self.with_gemms) <= SELDOM_WITH_GEMMS;
        if often && self.with_gemms.is_empty() && !is_plain {
            // Either micro-batches and a fused update, or steps and a log entry.
            if self.updates { Judgement::MicroBatch } else { Judgement::Ambiguous }
        } else if often || (often_with_gemms && covered < MOSTLY && unlike) {
            Judgement::Part
        } else if often_with_gemms || is_plain {
            Judgement::Ambiguous
        } else {
            Judgement::Step
        }
    }
}
