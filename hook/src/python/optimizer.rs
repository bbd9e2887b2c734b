//! Steps of PyTorch's optimizers, and which of them end a step of the program.
//!
//! A program may have several optimizers in its loop, and may step one of them for several parameter groups.
//! Only one optimizer is followed, with its first group, so that each iteration of the loop counts once. It
//! is an optimizer that the main thread steps, if there is one.

mod attach;
mod beside;
pub(crate) mod import;

use std::sync::{
    Mutex,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use xpu_wire::id::Rank;

use crate::{process::clock::monotonic, publish::identity::Place};
pub(crate) use attach::{attach_if_late, complaint};
use beside::Beside;

/// Forgets pending requests in a forked child.
pub(crate) fn forget() {
    attach::forget();
    import::forget();
}

/// Another optimizer is followed if it makes this many steps while the followed optimizer makes none for this
/// multiple of its interval.
const FEW: u32 = 3;
const LONGER: u64 = 4;
/// After this many steps of another optimizer, that optimizer is followed, however short the time.
const MANY: u32 = 32;
/// An optimizer with the same parameters replaces the followed one after this many steps.
const SAME_PARAMETERS: u32 = 2;

/// Longest name kept, in bytes.
const LONGEST_NAME: usize = 40;

/// An optimizer that stepped: its address, that of its first parameter, and its name.
#[derive(Clone, Debug)]
pub(crate) struct Optimizer {
    address: usize,
    parameter: usize,
    name: String,
}

impl Optimizer {
    fn new(address: usize, parameter: usize, name: &str) -> Self {
        Self { address, parameter, name: name[..name.floor_char_boundary(LONGEST_NAME)].to_owned() }
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        (self.address, self.parameter) == (other.address, other.parameter)
    }
}

/// The addresses of an optimizer and of its first parameter.
#[derive(Debug, Default)]
struct Known {
    optimizer: AtomicUsize,
    parameter: AtomicUsize,
}

/// The process's optimizers. One thread at a time writes them, under Python's lock.
#[derive(Debug, Default)]
pub(crate) struct Optimizers {
    followed: Known,
    /// Whether the program has dropped the followed optimizer, so that it will not step again.
    has_ended: AtomicBool,
    /// Whether the main thread steps the followed optimizer.
    in_main: AtomicBool,
    /// When the followed optimizer last stepped, and the interval before that step.
    stepped_at: AtomicU64,
    apart: AtomicU64,
    /// Another optimizer, and its number of steps since the followed optimizer last stepped. The number
    /// includes the steps of dropped optimizers that this one replaces.
    rival: Known,
    rival_steps: AtomicU32,
    /// Number of steps of all further optimizers since then.
    other_steps: AtomicU32,
    completed: AtomicU64,
    /// The optimizers that step beside the followed one.
    beside: Mutex<Beside>,
    name: Mutex<String>,
    /// This process's rank in the job, and the job's size, by torch.distributed.
    rank: AtomicU32,
    size: AtomicU32,
}

impl Known {
    fn is(&self, optimizer: &Optimizer) -> bool {
        self.optimizer.load(Relaxed) == optimizer.address
            && self.parameter.load(Relaxed) == optimizer.parameter
    }

    fn set(&self, optimizer: &Optimizer) {
        self.optimizer.store(optimizer.address, Relaxed);
        self.parameter.store(optimizer.parameter, Relaxed);
    }

    fn is_at(&self, address: usize) -> bool {
        address != 0 && self.optimizer.load(Relaxed) == address
    }

    fn is_none(&self) -> bool {
        self.optimizer.load(Relaxed) == 0
    }

    fn clear(&self) {
        self.optimizer.store(0, Relaxed);
        self.parameter.store(0, Relaxed);
    }
}

impl Optimizers {
    /// Counts an optimizer's step. If it ended a step of the program, returns the number of completed steps.
    pub(crate) fn stepped(&self, optimizer: &Optimizer, in_main: bool) -> Option<u64> {
        self.stepped_at(optimizer, in_main, monotonic())
    }

    fn stepped_at(&self, optimizer: &Optimizer, in_main: bool, now: u64) -> Option<u64> {
        if in_main && !self.in_main.swap(true, Relaxed) {
            // The earlier steps were on other threads, so they belonged to another loop.
            self.stepped_at.store(0, Relaxed);
            self.completed.store(0, Relaxed);
            if let Ok(mut beside) = self.beside.try_lock() {
                beside.clear();
            }
        } else if !in_main && self.in_main.load(Relaxed) {
            return None;
        }
        if !self.followed.is_at(optimizer.address)
            && let Ok(mut beside) = self.beside.try_lock()
        {
            beside.stepped(optimizer, self.completed());
        }
        let last = self.stepped_at.load(Relaxed);
        let since = now.saturating_sub(last);
        let mut steps = 1;
        if last == 0 {
            self.follow(optimizer);
        } else if self.followed.is(optimizer) {
            self.apart.store(since, Relaxed);
        } else if self.takes_over(optimizer, since) {
            steps = self.rival_steps.load(Relaxed);
            self.follow(optimizer);
            self.apart.store(since / u64::from(steps.max(1)), Relaxed);
        } else {
            return None;
        }
        self.stepped_at.store(now.max(1), Relaxed);
        self.has_ended.store(false, Relaxed);
        self.rival.clear();
        self.rival_steps.store(0, Relaxed);
        self.other_steps.store(0, Relaxed);
        Some(self.completed.fetch_add(steps.into(), Relaxed) + u64::from(steps))
    }

    /// Notes that the program has dropped the optimizer at this address.
    pub(crate) fn ended(&self, address: usize) {
        if self.followed.is_at(address) {
            self.has_ended.store(true, Relaxed);
        }
        if self.rival.is_at(address) {
            self.rival.clear();
        }
        if let Ok(mut beside) = self.beside.try_lock() {
            beside.forget(address);
        }
    }

    /// Says that another optimizer steps more or less often than the followed one, whose steps are shown.
    pub(crate) fn uneven(&self) -> Option<String> {
        let (steps, of) = self.beside.lock().ok()?.uneven(self.completed())?;
        let name = self.name();
        Some(format!(
            "steps are those of one optimizer ({name}): another one made {steps} steps during {of} of them"
        ))
    }

    /// Whether this optimizer replaces the followed one, which last stepped `since` nanoseconds ago. Steps
    /// are counted for only one other optimizer: the first that stepped since then.
    fn takes_over(&self, optimizer: &Optimizer, since: u64) -> bool {
        let has_ended = self.has_ended.load(Relaxed);
        if self.rival.is_none() {
            self.rival.set(optimizer);
        } else if !self.rival.is(optimizer) {
            let is_alone = has_ended && self.other_steps.fetch_add(1, Relaxed) >= MANY;
            if is_alone {
                self.rival_steps.store(1, Relaxed);
            }
            return is_alone;
        }
        let steps = self.rival_steps.load(Relaxed) + 1;
        self.rival_steps.store(steps, Relaxed);
        let apart = self.apart.load(Relaxed);
        let parameter = optimizer.parameter;
        let same = parameter != 0 && self.followed.parameter.load(Relaxed) == parameter;
        let gone = apart > 0 && since > apart.saturating_mul(LONGER);
        has_ended || steps >= MANY || steps >= FEW && gone || same && steps >= SAME_PARAMETERS
    }

    fn follow(&self, optimizer: &Optimizer) {
        self.followed.set(optimizer);
        if let Ok(mut beside) = self.beside.try_lock() {
            beside.forget(optimizer.address);
        }
        if let Ok(mut known) = self.name.lock() {
            known.clone_from(&optimizer.name);
        }
    }

    /// Keeps this process's place by torch.distributed; the size is 0 if the program does not use it.
    pub(crate) fn place(&self, rank: Rank, size: u32) {
        self.rank.store(rank.0, Relaxed);
        self.size.store(size, Release);
    }

    /// This process's place by torch.distributed; `None` if the program does not use it.
    pub(crate) fn placed(&self) -> Option<Place> {
        let size = self.size.load(Acquire);
        let rank = Rank(self.rank.load(Relaxed));
        (rank.0 < size).then_some(Place { rank, world_size: size })
    }

    pub(crate) fn completed(&self) -> u64 {
        self.completed.load(Relaxed)
    }

    /// The followed optimizer's name.
    pub(crate) fn name(&self) -> String {
        self.name.lock().map(|name| name.clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// The number of steps counted after each call. Each call is a step of an optimizer (address, first
    /// parameter), every 10 ms.
    fn counted(calls: impl IntoIterator<Item = (usize, usize)>) -> Vec<Option<u64>> {
        let optimizers = Optimizers::default();
        let at = |place: usize| (place as u64 + 1) * 10 * MS;
        calls
            .into_iter()
            .enumerate()
            .map(|(place, (optimizer, parameter))| {
                optimizers.stepped_at(&Optimizer::new(optimizer, parameter, "Adam"), true, at(place))
            })
            .collect()
    }

    #[test]
    fn the_first_of_two_optimizers_in_a_loop_is_followed() {
        let numbers = counted([(1, 10), (2, 20)].repeat(50));
        assert_eq!(numbers.iter().flatten().copied().collect::<Vec<_>>(), (1..=50).collect::<Vec<_>>());
        // One optimizer steps five times for each step of the other.
        let numbers = counted([(1, 10), (2, 20), (2, 20), (2, 20), (2, 20), (2, 20)].repeat(20));
        assert_eq!(numbers.into_iter().flatten().last(), Some(20));
    }

    #[test]
    fn an_optimizer_that_steps_more_or_less_often_is_reported() {
        let uneven = |calls: Vec<(usize, usize)>| {
            let optimizers = Optimizers::default();
            for (at, (address, parameter)) in (1..).zip(calls) {
                optimizers.stepped_at(&Optimizer::new(address, parameter, "Adam"), true, at * 10 * MS);
            }
            optimizers.uneven()
        };
        assert_eq!(
            uneven([(1, 10), (1, 10), (1, 10), (1, 10), (1, 10), (2, 20)].repeat(20)).as_deref(),
            Some("steps are those of one optimizer (Adam): another one made 20 steps during 95 of them")
        );
        assert_eq!(uneven([(1, 10), (2, 20)].repeat(50)), None);
        // Parameter groups of one optimizer, and of two.
        assert_eq!(uneven([(1, 10), (1, 11), (2, 20), (2, 21)].repeat(50)), None);
        assert_eq!(uneven([(1, 10), (1, 11), (1, 12)].repeat(50)), None);
        // An optimizer that no longer steps.
        assert_eq!(uneven([[(1, 10), (2, 20), (2, 20)].repeat(20), [(1, 10)].repeat(300)].concat()), None);
    }

    #[test]
    fn the_optimizer_of_the_main_thread_is_followed() {
        let (slow, fast) = (Optimizer::new(1, 10, "Adam"), Optimizer::new(2, 20, "SGD"));
        let optimizers = Optimizers::default();
        let mut now = 0;
        let mut step = |optimizer: &Optimizer, in_main: bool| {
            now += 10 * MS;
            optimizers.stepped_at(optimizer, in_main, now)
        };
        assert_eq!([step(&slow, false), step(&slow, false)], [Some(1), Some(2)], "nothing else is known yet");
        for round in 0..50 {
            assert_eq!(step(&fast, true), Some(2 * round + 1));
            assert_eq!(step(&slow, false), None);
            assert_eq!(step(&fast, true), Some(2 * round + 2));
        }
        assert_eq!(optimizers.name(), "SGD");
        assert!((0..2 * MANY).all(|_| step(&slow, false).is_none()), "also where the main one has ended");
    }

    #[test]
    fn an_optimizer_per_parameter_counts_once_a_round() {
        let round: Vec<_> = (1..200).map(|each| (each, each * 10)).collect();
        assert_eq!(counted(round.repeat(8)).into_iter().flatten().last(), Some(8));
    }

    #[test]
    fn an_optimizer_called_once_per_parameter_group_counts_once() {
        let numbers = counted([(1, 10), (1, 20), (1, 30)].repeat(40));
        assert_eq!(numbers.into_iter().flatten().last(), Some(40));
    }

    #[test]
    fn a_wrapped_optimizer_counts_once() {
        let numbers = counted([(1, 10), (2, 10)].repeat(40));
        assert_eq!(numbers.into_iter().flatten().last(), Some(40));
    }

    #[test]
    fn a_replacement_optimizer_continues_the_count() {
        // An optimizer is created again with the same parameters, or with others for another phase.
        for next in [(2, 10), (2, 20)] {
            let numbers = counted([[(1, 10)].repeat(100), [next].repeat(100)].concat());
            assert_eq!(numbers.last().copied().flatten(), Some(200), "{next:?}");
        }
    }

    /// The number of steps counted. Each address is a step of that optimizer, every 10 ms. After a 0, the
    /// next address is that of an optimizer that the program drops.
    fn counted_of_dropped(calls: impl IntoIterator<Item = usize>) -> Option<u64> {
        let optimizers = Optimizers::default();
        let (mut dropped, mut now, mut counted) = (false, 0, None);
        for address in calls {
            if address == 0 {
                dropped = true;
            } else if std::mem::take(&mut dropped) {
                optimizers.ended(address);
            } else {
                now += 10 * MS;
                counted = optimizers
                    .stepped_at(&Optimizer::new(address, address * 10, "SGD"), true, now)
                    .or(counted);
            }
        }
        counted
    }

    #[test]
    fn a_new_optimizer_per_step_counts_each_step() {
        let each_once = (1..=100).flat_map(|each| [each, 0, each]);
        assert_eq!(counted_of_dropped(each_once), Some(100));
        let each_thrice = (1..=100).flat_map(|each| [each, each, each, 0, each]);
        assert_eq!(counted_of_dropped(each_thrice), Some(300));
        // One optimizer steps once and stays; the others each step twice and are dropped.
        let beside = [1].into_iter().chain((2..=201).flat_map(|each| [each, 0, each]));
        assert_eq!(counted_of_dropped(beside), Some(201));
    }

    #[test]
    fn a_lasting_optimizer_is_preferred_to_temporary_ones() {
        // Each task has five steps of an inner optimizer, and one of the outer optimizer.
        let tasks = (2..=101).flat_map(|task| [task, task, task, task, task, 1, 0, task]);
        assert_eq!(counted_of_dropped(tasks), Some(5 + 100));
        // The followed optimizer is not followed forever.
        let abandoned = [2, 1, 0, 2].into_iter().chain([3; 100]);
        assert_eq!(counted_of_dropped(abandoned), Some(1 + 100 - u64::from(MANY)));
    }

    #[test]
    fn a_name_is_cut_between_letters() {
        let optimizers = Optimizers::default();
        optimizers.stepped(&Optimizer::new(1, 1, &"ß".repeat(30)), true);
        assert_eq!(optimizers.name(), "ß".repeat(20));
    }
}
