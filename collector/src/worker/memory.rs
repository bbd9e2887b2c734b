//! A rank's GPU memory over time: what it held after its first steps, by call site, and whether it grows
//! steadily.

use std::{cmp::Reverse, collections::VecDeque, time::Duration};

use xpu_wire::{
    frame::{CallSite, MemoryGrowth, MemorySite, MemoryTotals},
    id::Step,
    ledger::{Ledger, MemorySiteReading},
    text,
    unit::{Moment, Nanoseconds},
};

use super::record::frames;

/// After this many steps, allocators hold the memory that a step needs.
const FIRST_STEPS: u64 = 10;

/// Length of an interval. The minimum held in each interval is kept: memory that a step frees again is not
/// growth.
const EVERY: Duration = Duration::from_secs(10);

/// Number of intervals that are kept: ten minutes.
const KEPT: usize = 60;

/// The kept intervals are divided into this many parts, each of at least [`LEAST`] intervals. Memory grows if
/// it grew from each part to the next.
const PARTS: usize = 8;
const LEAST: usize = 3;

/// Quantile of Student's t for a 95 % interval of the rates between these parts.
const T: f64 = 2.447;

/// Growth that falls below this share of its earlier rate levels off, as after a start.
const STEADY: f64 = 0.5;

#[derive(Debug, Default)]
pub(super) struct HeldMemory {
    first: Option<First>,
    floors: VecDeque<Floor>,
    /// The begin of the current interval, and its minimum so far.
    open: Option<(Moment, Floor)>,
    growth: Option<MemoryGrowth>,
}

/// The memory held after the first steps.
#[derive(Debug)]
struct First {
    step: Step,
    held: u64,
    /// The bytes held by each site, by its number.
    sites: Vec<(u8, u64)>,
}

/// The minimum of the memory held in an interval.
#[derive(Clone, Copy, Debug)]
struct Floor {
    at: Moment,
    step: Step,
    held: u64,
}

impl HeldMemory {
    /// Takes the memory that the rank holds now.
    pub(super) fn take(&mut self, step: Option<Step>, held: u64, ledger: Option<&Ledger>, now: Moment) {
        let Some(step) = step.filter(|step| step.0 >= FIRST_STEPS && held > 0) else { return };
        self.first.get_or_insert_with(|| {
            let sites = ledger.map(|ledger| ledger.memory.read()).unwrap_or_default();
            First { step, held, sites: sites.iter().map(|site| (site.number, site.held)).collect() }
        });
        let floor = Floor { at: now, step, held };
        match &mut self.open {
            Some((began, least)) if now.since(*began) < EVERY => {
                if held < least.held {
                    *least = floor;
                }
            }
            open => {
                if let Some((_, ended)) = open.replace((now, floor)) {
                    self.floors.push_back(ended);
                    if self.floors.len() > KEPT {
                        self.floors.pop_front();
                    }
                    self.growth = growth(self.floors.make_contiguous());
                }
            }
        }
    }

    pub(super) fn growth(&self) -> Option<MemoryGrowth> {
        self.growth
    }

    /// The number of first steps, and the bytes held after them.
    pub(super) fn first(&self) -> Option<(Step, u64)> {
        self.first.as_ref().map(|first| (first.step, first.held))
    }

    /// The call sites that grew most. Before the first steps are completed, those that hold most.
    pub(super) fn sites(&self, ledger: &Ledger) -> Vec<MemorySite> {
        let mut sites: Vec<MemorySite> = Vec::new();
        for site in ledger.memory.read().into_iter().map(|reading| self.site(reading)) {
            match sites.iter_mut().find(|known| is_same(&known.site, &site.site)) {
                Some(known) => merge(known, &site),
                None => sites.push(site),
            }
        }
        if self.first.is_some() {
            sites.retain(|site| site.grown() > Some(0));
        }
        sites.sort_by_key(|site| Reverse(site.grown().unwrap_or(site.held)));
        sites.truncate(MemoryTotals::SITES);
        sites
    }

    fn site(&self, reading: MemorySiteReading) -> MemorySite {
        let MemorySiteReading { number, held, allocations, first_step, last_step, .. } = reading;
        let held_before = self.first.as_ref().map(|first| {
            let known = first.sites.iter().find(|(known, _)| *known == number);
            known.map_or(0, |&(_, held)| held)
        });
        let site = CallSite {
            frames: frames(&reading.python),
            returns_to: reading.returns_to,
            native: text::clean(&reading.native).into_owned(),
        };
        MemorySite { site, held, held_before, allocations, first_step, last_step }
    }
}

/// Whether two sites are the same. A Python site may have several numbers: when the interpreter specializes a
/// call, the call's address changes.
fn is_same(one: &CallSite, other: &CallSite) -> bool {
    (&one.frames, &one.native) == (&other.frames, &other.native)
}

fn merge(one: &mut MemorySite, other: &MemorySite) {
    one.held += other.held;
    one.held_before = one.held_before.zip(other.held_before).map(|(one, other)| one + other);
    one.allocations += other.allocations;
    one.first_step = one.first_step.min(other.first_step);
    one.last_step = one.last_step.max(other.last_step);
}

/// Growth over these intervals, oldest first. `None` if it is not steady.
fn growth(floors: &[Floor]) -> Option<MemoryGrowth> {
    let each = floors.len() / PARTS;
    if each < LEAST {
        return None;
    }
    let recent = &floors[floors.len() - each * PARTS..];
    let parts: Vec<Floor> =
        recent.chunks(each).filter_map(|part| part.iter().min_by_key(|floor| floor.held).copied()).collect();
    let rates = parts.windows(2).map(|pair| {
        let steps = pair[1].step.0.checked_sub(pair[0].step.0).filter(|&steps| steps > 0)?;
        let more = pair[1].held.checked_sub(pair[0].held).filter(|&more| more > 0)?;
        Some(more as f64 / steps as f64)
    });
    let rates: Vec<f64> = rates.collect::<Option<_>>()?;
    let (first, middle, last) = (parts.first()?, parts.get(PARTS / 2)?, parts.last()?);
    let rate = |from: &Floor, to: &Floor| (to.held - from.held) as f64 / (to.step.0 - from.step.0) as f64;
    let per_step = rate(first, last);
    let variance = rates.iter().map(|rate| (rate - per_step).powi(2)).sum::<f64>() / (rates.len() - 1) as f64;
    let error = T * (variance / rates.len() as f64).sqrt();
    let is_steady = rate(middle, last) >= STEADY * rate(first, middle);
    (is_steady && error < per_step).then(|| MemoryGrowth {
        per_step,
        least: per_step - error,
        most: per_step + error,
        steps: last.step.0 - first.step.0,
        over: Nanoseconds(last.at.0.saturating_sub(first.at.0)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    /// The growth of a rank with ten steps a second, reported once a second.
    fn after(seconds: u64, held: impl Fn(u64) -> u64) -> Option<MemoryGrowth> {
        let mut memory = HeldMemory::default();
        for second in 0..seconds {
            let now = Moment(1).after(Duration::from_secs(second));
            memory.take(Some(Step(second * 10)), held(second * 10), None, now);
        }
        memory.growth()
    }

    #[test]
    fn memory_that_grows_by_the_same_amount_each_step_grows() {
        let growth = after(300, |step| 1000 * MIB + step * MIB).unwrap();
        assert!((growth.per_step / MIB as f64 - 1.0).abs() < 1e-9, "{growth:?}");
        assert!(growth.over >= Nanoseconds::from(Duration::from_mins(3)), "{growth:?}");
        assert!((growth.per_second() / MIB as f64 - 10.0).abs() < 1e-6, "{growth:?}");
    }

    /// Memory as from a caching allocator that requests 20 MiB at a time, and memory that each step frees
    /// again.
    #[test]
    fn growth_by_large_pieces_is_known_with_an_interval() {
        let held = |step: u64| 1000 * MIB + step * 3 / 10 / 20 * 20 * MIB + step % 7 * 100 * MIB;
        let growth = after(700, held).unwrap();
        let per_step = 0.3 * MIB as f64;
        assert!(growth.least > 0.0 && (growth.least..growth.most).contains(&per_step), "{growth:?}");
    }

    #[test]
    fn growth_is_reported_after_a_few_minutes() {
        assert_eq!(after(200, |step| 1000 * MIB + step * MIB), None);
    }

    #[test]
    fn memory_that_does_not_grow_steadily_does_not_grow() {
        type Held = fn(u64) -> u64;
        let growing: [(&str, Held); 7] = [
            ("constant", |_| 1000 * MIB),
            ("freed every 100 steps", |step| 1000 * MIB + step % 100 * MIB),
            ("freed every two minutes", |step| 1000 * MIB + step % 1200 * MIB),
            ("grown once", |step| if step < 2000 { 1000 * MIB } else { 3000 * MIB }),
            ("grown until the middle", |step| 1000 * MIB + step.min(2000) * MIB),
            ("levelling off", |step| (1000.0 * MIB as f64 * (1.0 - (-(step as f64) / 900.0).exp())) as u64),
            ("shrinking", |step| (10_000 - step) * MIB),
        ];
        for (name, held) in growing {
            for seconds in (240..900).step_by(30) {
                assert_eq!(after(seconds, held), None, "{name} after {seconds} s");
            }
        }
    }

    /// The memory of the longest of random lengths so far: new maxima become rarer.
    #[test]
    fn memory_for_the_longest_sequence_so_far_does_not_grow() {
        for seed in 1..200_u64 {
            let longest = |step: u64| {
                let lengths = (0..=step / 10).map(|n| xpu_wire::sampling::priority(n * 1000 + seed) % 4096);
                1000 * MIB + lengths.max().unwrap_or(0) * MIB
            };
            assert_eq!(after(250, longest), None, "seed {seed}");
        }
    }

    #[test]
    fn grown_call_sites_are_named_with_the_most_first() {
        let page = xpu_wire::ledger::LedgerPage::create().unwrap();
        let ledger = page.ledger();
        let allocate_by = |frames: u64, line: u64, bytes: u64, step: u64| {
            let at = xpu_wire::ledger::Allocating { frames, returns_to: 16, step: Step(step) };
            ledger.memory.allocated(bytes, at, |python, _| {
                python.write(format!("f{line}\0/work/train.py\0{line}\n").as_bytes());
            });
        };
        let allocate = |line, bytes, step| allocate_by(line, line, bytes, step);
        allocate(1, 900, 0);
        allocate(2, 500, 0);
        let mut memory = HeldMemory::default();
        let places = |memory: &HeldMemory| {
            let sites = memory.sites(ledger).into_iter();
            sites.map(|site| (site.site.place().unwrap(), site.held, site.held_before)).collect::<Vec<_>>()
        };
        assert_eq!(places(&memory)[0], ("train.py:1 f1".to_owned(), 900, None));
        memory.take(Some(Step(12)), 1400, Some(ledger), Moment(1));
        assert_eq!((places(&memory), memory.first()), (Vec::new(), Some((Step(12), 1400))));
        allocate(2, 100, 20);
        allocate(3, 200, 21);
        allocate_by(77, 3, 100, 22);
        let named =
            [("train.py:3 f3".to_owned(), 300, Some(0)), ("train.py:2 f2".to_owned(), 600, Some(500))];
        assert_eq!(places(&memory), named);
        let steps =
            memory.sites(ledger).iter().map(|site| (site.first_step.0, site.last_step.0)).collect::<Vec<_>>();
        assert_eq!(steps, [(21, 22), (0, 20)]);
    }
}
