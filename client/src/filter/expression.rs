//! A parsed filter, and its result for a rank.

use xpu_model::job::median;

use super::{
    Subject,
    field::{Field, Kind},
    glob,
};

/// A condition on a rank. Three-valued: the result is `None` if it needs an unknown figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Expression {
    Number { field: FieldRef, test: NumberTest },
    Word { field: FieldRef, words: Vec<String>, whole: bool },
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum NumberTest {
    Below(Limit),
    AtMost(Limit),
    Above(Limit),
    AtLeast(Limit),
    /// Any of these ranges; both ends are included.
    Among(Vec<(Limit, Limit)>),
}

/// A number, or a multiple of the ranks' median.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Limit {
    pub factor: f64,
    pub of: Option<Statistic>,
}

/// A field. Fields are equal if their names are.
#[derive(Clone, Copy, Debug)]
pub(super) struct FieldRef(pub &'static Field);

impl PartialEq for FieldRef {
    fn eq(&self, other: &Self) -> bool {
        self.0.name() == other.0.name()
    }
}

/// Figures over all ranks of the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statistic {
    Median,
    Mean,
    Min,
    Max,
    P10,
    P90,
    P99,
}

impl Statistic {
    pub const ALL: [(&'static str, Self); 8] = [
        ("median", Self::Median),
        ("p50", Self::Median),
        ("mean", Self::Mean),
        ("min", Self::Min),
        ("max", Self::Max),
        ("p10", Self::P10),
        ("p90", Self::P90),
        ("p99", Self::P99),
    ];

    pub(super) fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, one)| *one)
    }

    fn of(self, mut values: Vec<f64>) -> Option<f64> {
        values.sort_by(f64::total_cmp);
        let share = match self {
            Self::Median => return median(values),
            Self::Mean => return xpu_model::job::mean(values.into_iter()),
            Self::Min => 0.0,
            Self::P10 => 0.1,
            Self::P90 => 0.9,
            Self::P99 => 0.99,
            Self::Max => 1.0,
        };
        // The smallest value that this share of the values does not exceed.
        let place = (values.len() as f64 * share).ceil() as usize;
        values.get(place.saturating_sub(1)).copied()
    }
}

/// A filter, with the figures of the job that it compares with.
#[derive(Debug)]
pub struct Judge<'f> {
    expression: &'f Expression,
    known: Vec<(FieldRef, Statistic, Option<f64>)>,
}

impl<'f> Judge<'f> {
    pub(super) fn new<'s>(
        expression: &'f Expression,
        ranks: impl Iterator<Item = Subject<'s>> + Clone,
    ) -> Self {
        let mut wanted = Vec::new();
        expression.statistics(&mut wanted);
        let mut known: Vec<(FieldRef, Statistic, Option<f64>)> = Vec::new();
        for (field, statistic) in wanted {
            if known.iter().any(|(one, of, _)| (*one, *of) == (field, statistic)) {
                continue;
            }
            let values = ranks.clone().filter_map(|rank| field.number(rank)).collect();
            known.push((field, statistic, statistic.of(values)));
        }
        Self { expression, known }
    }

    /// Whether the filter selects the rank; `None` if that needs an unknown figure.
    pub fn verdict(&self, rank: Subject<'_>) -> Option<bool> {
        self.expression.verdict(rank, self)
    }

    fn limit(&self, field: FieldRef, limit: Limit) -> Option<f64> {
        let Some(statistic) = limit.of else { return Some(limit.factor) };
        let known = self.known.iter().find(|(one, of, _)| (*one, *of) == (field, statistic));
        known.and_then(|(.., value)| *value).map(|value| value * limit.factor)
    }
}

impl FieldRef {
    fn number(self, rank: Subject<'_>) -> Option<f64> {
        match self.0.kind {
            Kind::Number { of, .. } => of(rank).filter(|value| value.is_finite()),
            Kind::Word { .. } => None,
        }
    }
}

/// Figures are compared to a tenth, as they are shown: what reads 512.3 equals 512.3.
const HALF_A_TENTH: f64 = 0.05;

impl Expression {
    fn statistics(&self, wanted: &mut Vec<(FieldRef, Statistic)>) {
        match self {
            Self::Number { field, test } => {
                wanted.extend(test.limits().into_iter().filter_map(|limit| Some((*field, limit.of?))));
            }
            Self::Word { .. } => {}
            Self::Not(one) => one.statistics(wanted),
            Self::All(all) | Self::Any(all) => all.iter().for_each(|one| one.statistics(wanted)),
        }
    }

    fn verdict(&self, rank: Subject<'_>, judge: &Judge<'_>) -> Option<bool> {
        match self {
            Self::Number { field, test } => {
                test.verdict(field.number(rank)?, |limit| judge.limit(*field, limit))
            }
            Self::Word { field, words, whole } => {
                let Kind::Word { of, .. } = field.0.kind else { return None };
                let text = of(rank);
                let fits = if *whole { glob::same } else { glob::like };
                Some(words.iter().any(|word| fits(text, word)))
            }
            Self::Not(one) => one.verdict(rank, judge).map(|verdict| !verdict),
            Self::All(all) => decided(all.iter().map(|one| one.verdict(rank, judge)), false),
            Self::Any(all) => decided(all.iter().map(|one| one.verdict(rank, judge)), true),
        }
    }
}

/// One deciding part is enough. If no part decides, an unknown part makes the result unknown.
fn decided(all: impl Iterator<Item = Option<bool>>, decides: bool) -> Option<bool> {
    let mut unknown = false;
    for verdict in all {
        match verdict {
            Some(verdict) if verdict == decides => return Some(decides),
            Some(_) => {}
            None => unknown = true,
        }
    }
    if unknown { None } else { Some(!decides) }
}

impl NumberTest {
    fn limits(&self) -> Vec<Limit> {
        match self {
            Self::Below(limit) | Self::AtMost(limit) | Self::Above(limit) | Self::AtLeast(limit) => {
                vec![*limit]
            }
            Self::Among(ranges) => ranges.iter().flat_map(|(from, to)| [*from, *to]).collect(),
        }
    }

    fn verdict(&self, value: f64, known: impl Fn(Limit) -> Option<f64>) -> Option<bool> {
        Some(match self {
            Self::Below(limit) => value < known(*limit)?,
            Self::AtMost(limit) => value <= known(*limit)?,
            Self::Above(limit) => value > known(*limit)?,
            Self::AtLeast(limit) => value >= known(*limit)?,
            Self::Among(ranges) => {
                let within = |&(from, to): &(Limit, Limit)| {
                    let (from, to) = (known(from)?, known(to)?);
                    Some(value >= from - HALF_A_TENTH && value < to + HALF_A_TENTH)
                };
                return decided(ranges.iter().map(within), true);
            }
        })
    }
}
