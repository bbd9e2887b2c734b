//! The figures of each rank in the last half hour, one byte per figure.
//!
//! The byte holds the rank's distance from the median of that moment: finely near the median, coarsely far
//! away. The median itself is kept exactly, once for all ranks. So noise is not amplified, a rank that is a
//! thousand times slower still has a value, and the bytes of one moment are enough to find the worst rank.

use std::time::Duration;

use xpu_model::{job::median, status::RankState};
use xpu_wire::{
    id::{JobName, Rank},
    unit::Moment,
};

use super::{Columns, JobView, Metric, Row};
use crate::widget::scale::{Scale, Worse};

/// The time of one column.
pub const PERIOD: Duration = Duration::from_secs(5);

/// Half an hour. A rank takes 4 KB for it, ten thousand ranks 38 MiB.
pub const COLUMNS: usize = 360;

const METRICS: usize = Metric::ALL.len();

/// The bad end of the scale is the value that is worse in only a quarter of the moments, so that a single
/// pause does not make all other values look equal.
const USUAL: f64 = 0.75;

/// Largest number of redraws in a row that may have too much other work to note figures.
const WAITS: u8 = 2;

#[derive(Debug, Default)]
pub struct History {
    job: JobName,
    /// The ranks' tracks, in the order of the job view's rows.
    tracks: Vec<Track>,
    /// Column `n` is stored at `n % COLUMNS`.
    moments: Vec<Column>,
    /// The last column, and the last second that was noted.
    last: Option<u64>,
    looked: u64,
    /// Number of redraws in a row that had too much other work to note figures.
    waited: u8,
}

#[derive(Debug)]
struct Track {
    rank: Rank,
    /// The bytes, by metric and then by column.
    codes: Box<[u8]>,
}

#[derive(Clone, Debug, Default)]
struct Column {
    number: u64,
    figures: [Option<Figures>; METRICS],
}

/// The ranks' figures of one moment, in more detail than bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Figures {
    median: f32,
    lowest: f32,
    highest: f32,
    /// The base of differences: the median, or a step.
    whole: f32,
    /// The amount that is added to a value before comparing: arrival skew is a share of a step.
    offset: f32,
}

/// A rank's byte.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Code(u8);

/// The meaning of a byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum PastValue {
    Unknown,
    /// The rank waits for another.
    Waits,
    /// The job hangs because of it.
    Alarm,
    Value(f64),
}

impl Code {
    const UNKNOWN: u8 = 0;
    const ALARM: u8 = 1;
    const WAITS: u8 = 2;
    /// A value at the median.
    const MIDDLE: u8 = 129;
    /// The logarithm of a fine step, the number of fine steps on each side, and the logarithm of a coarse
    /// step beyond them.
    const FINE: f64 = 0.01;
    const FINES: f64 = 60.0;
    const COARSE: f64 = 0.08;

    fn of(value: f64, figures: &Figures) -> Self {
        let (value, reference) = (value + f64::from(figures.offset), figures.reference());
        let far = if reference > 0.0 { (value / reference).max(0.0).ln() } else { 0.0 };
        let near = far.abs() / Self::FINE;
        let steps = if near <= Self::FINES {
            near.round()
        } else {
            Self::FINES + ((far.abs() - Self::FINES * Self::FINE) / Self::COARSE).round()
        };
        Self((f64::from(Self::MIDDLE) + steps.copysign(far)).clamp(f64::from(Self::WAITS) + 1.0, 255.0) as u8)
    }

    fn decoded(self, figures: &Figures) -> PastValue {
        match self.0 {
            Self::UNKNOWN => PastValue::Unknown,
            Self::ALARM => PastValue::Alarm,
            Self::WAITS => PastValue::Waits,
            code => {
                let steps = f64::from(code) - f64::from(Self::MIDDLE);
                let fine = steps.abs().min(Self::FINES) * Self::FINE;
                let far = fine + (steps.abs() - Self::FINES).max(0.0) * Self::COARSE;
                PastValue::Value(far.copysign(steps).exp() * figures.reference() - f64::from(figures.offset))
            }
        }
    }

    /// Order of the values of one moment, from harmless to worst.
    fn severity(self, worse: Worse) -> u16 {
        match self.0 {
            Self::UNKNOWN => 0,
            Self::WAITS => 1,
            Self::ALARM => u16::MAX,
            code if worse == Worse::High => u16::from(code),
            code => 2 * 256 - u16::from(code),
        }
    }
}

impl Figures {
    fn of(scale: &Scale, offset: f64) -> Self {
        let whole = if offset > 0.0 { offset } else { scale.median };
        let [median, lowest, highest, whole, offset] =
            [scale.median, scale.lowest, scale.highest, whole, offset].map(|value| value as f32);
        Self { median, lowest, highest, whole, offset }
    }

    /// The median; if it is almost zero, a hundredth of the highest value.
    fn reference(&self) -> f64 {
        let [median, highest] = [self.median, self.highest].map(|value| f64::from(value + self.offset));
        median.max(highest / 100.0)
    }
}

impl History {
    /// The columns that are remembered.
    pub fn known(&self) -> Columns {
        self.first().zip(self.last()).unwrap_or((0, 0))
    }

    /// Notes the ranks' figures at `now`, by the clock of their hosts. Does so at most once a second, because
    /// it goes through all ranks.
    pub(super) fn take(&mut self, job: &JobName, job_view: &JobView, now: Moment) {
        let second = now.0 / 1_000_000_000;
        if self.job != *job {
            *self = Self { job: job.clone(), ..Self::default() };
        } else if self.tracks.len() == job_view.rows().len() {
            if self.looked == second {
                return;
            }
            if job_view.busy && self.waited < WAITS {
                self.waited += 1;
                return;
            }
        }
        (self.looked, self.waited) = (second, 0);
        self.match_tracks(job_view.rows());
        self.moments.resize(COLUMNS, Column::default());
        let number = second / PERIOD.as_secs();
        self.last = Some(number);
        let slot = slot(number);
        let column = &mut self.moments[slot];
        if column.number != number {
            *column = Column { number, figures: [None; METRICS] };
        }
        for metric in Metric::ALL {
            let known = column.figures[metric as usize].is_some();
            let figures = job_view.scale(metric).filter(|_| !job_view.is_frozen());
            let figures = figures.map(|scale| Figures::of(scale, job_view.whole(metric).unwrap_or(0.0)));
            // Right after a jump back in time, figures of this moment may be missing although they were noted
            // before.
            if figures.is_none() && known {
                continue;
            }
            column.figures[metric as usize] = figures;
            for (track, row) in self.tracks.iter_mut().zip(job_view.rows()) {
                track.codes[metric as usize * COLUMNS + slot] = code(row, metric, figures.as_ref()).0;
            }
        }
    }

    /// Ranks are only ever added to a job, so both lists have the same order.
    fn match_tracks(&mut self, rows: &[Row]) {
        if self.tracks.len() == rows.len() {
            return;
        }
        let mut old = std::mem::take(&mut self.tracks).into_iter().peekable();
        let empty = |rank| Track { rank, codes: vec![Code::UNKNOWN; METRICS * COLUMNS].into() };
        let tracks = rows.iter().map(|row| {
            let rank = row.status.rank;
            old.next_if(|track| track.rank == rank).unwrap_or_else(|| empty(rank))
        });
        self.tracks = tracks.collect();
    }

    /// The present column.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The first column with data.
    pub fn first(&self) -> Option<u64> {
        let last = self.last?;
        let from = last.saturating_sub(COLUMNS as u64 - 1);
        (from..=last).find(|&number| self.column(number).is_some_and(|column| column.number > 0))
    }

    fn column(&self, number: u64) -> Option<&Column> {
        let known = Some(number) <= self.last;
        self.moments.get(slot(number)).filter(|column| known && column.number == number)
    }

    fn figures(&self, metric: Metric, number: u64) -> Option<&Figures> {
        self.column(number)?.figures[metric as usize].as_ref()
    }

    /// A row's byte at a column.
    fn code(&self, row: usize, metric: Metric, number: u64) -> Code {
        let code = || {
            self.column(number)?;
            self.tracks.get(row)?.codes.get(metric as usize * COLUMNS + slot(number)).copied()
        };
        Code(code().unwrap_or(Code::UNKNOWN))
    }

    /// The values of the worst of these rows, column by column.
    pub fn worst(
        &self,
        rows: impl Iterator<Item = usize>,
        metric: Metric,
        columns: std::ops::RangeInclusive<u64>,
    ) -> Vec<PastValue> {
        let severities: [u16; 256] = std::array::from_fn(|code| Code(code as u8).severity(metric.worse()));
        let slots: Vec<_> = columns.clone().map(|number| self.column(number).map(|_| slot(number))).collect();
        let mut worst = vec![Code::UNKNOWN; slots.len()];
        for track in rows.filter_map(|row| self.tracks.get(row)) {
            let codes = &track.codes[metric as usize * COLUMNS..][..COLUMNS];
            for (worst, slot) in worst.iter_mut().zip(&slots) {
                let code = slot.map_or(Code::UNKNOWN, |slot| codes[slot]);
                if severities[usize::from(code)] > severities[usize::from(*worst)] {
                    *worst = code;
                }
            }
        }
        columns.zip(worst).map(|(number, code)| self.decoded(Code(code), metric, number)).collect()
    }

    /// The meaning of a byte in this column.
    fn decoded(&self, code: Code, metric: Metric, number: u64) -> PastValue {
        match (code.0, self.figures(metric, number)) {
            (Code::ALARM, _) => PastValue::Alarm,
            (Code::WAITS, _) => PastValue::Waits,
            (_, Some(figures)) => code.decoded(figures),
            (_, None) => PastValue::Unknown,
        }
    }

    /// A row's values, column by column; `None` where none is known.
    pub fn values(&self, row: usize, metric: Metric) -> Vec<Option<f32>> {
        self.along(|number| match self.decoded(self.code(row, metric, number), metric, number) {
            PastValue::Value(value) => Some(value as f32),
            _ => None,
        })
    }

    /// The ranks' medians, column by column.
    pub fn medians(&self, metric: Metric) -> Vec<Option<f32>> {
        self.along(|number| Some(self.figures(metric, number)?.median))
    }

    fn along(&self, of: impl Fn(u64) -> Option<f32>) -> Vec<Option<f32>> {
        match (self.first(), self.last) {
            (Some(first), Some(last)) => (first..=last).map(of).collect(),
            _ => Vec::new(),
        }
    }

    /// The scale from the worst to the best value in these columns.
    pub fn scale(&self, metric: Metric, columns: impl Iterator<Item = u64>) -> Option<Scale> {
        let known: Vec<_> = columns.filter_map(|number| self.figures(metric, number)).collect();
        let latest = known.last()?;
        let of = |value: fn(&Figures) -> f32| known.iter().map(|figures| f64::from(value(figures))).collect();
        let (lows, highs): (Vec<f64>, Vec<f64>) =
            (of(|figures| figures.lowest), of(|figures| figures.highest));
        let (lowest, highest) = match metric.worse() {
            Worse::Low => (low_of(lows).min(latest.lowest.into()), highest(&highs)),
            Worse::High => (lowest(&lows), high_of(highs).max(latest.highest.into())),
        };
        let whole = (latest.offset > 0.0).then_some(f64::from(latest.whole));
        Some(Scale::reaching(median(of(|figures| figures.median))?, lowest, highest, metric.worse(), whole))
    }
}

fn slot(number: u64) -> usize {
    (number % COLUMNS as u64) as usize
}

fn code(row: &Row, metric: Metric, figures: Option<&Figures>) -> Code {
    use xpu_wire::frame::Life;
    match (row.life, row.status.state) {
        (Life::Died, _) => return Code(Code::ALARM),
        (Life::Alive, RankState::Hung) if row.is_heard() => return Code(Code::ALARM),
        _ => {}
    }
    let value = metric.of(row).filter(|_| row.is_heard());
    match (value, figures) {
        (Some(value), Some(figures)) => Code::of(value, figures),
        _ if row.status.state == RankState::Waiting => Code(Code::WAITS),
        _ => Code::default(),
    }
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

/// The value that a quarter of the values are below.
fn low_of(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(|a, b| b.total_cmp(a));
    at(&values)
}

/// The value that a quarter of the values exceed.
fn high_of(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    at(&values)
}

fn at(sorted: &[f64]) -> f64 {
    let place = (sorted.len().saturating_sub(1)) as f64 * USUAL;
    sorted.get(place as usize).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests;
