//! The optimizers that step beside the followed one: a GAN's critic may step five times for each step of the
//! generator, so which of them makes a step of the program is the program's convention.

/// Number of optimizers that are watched, steps after which their pace is known, and the largest difference
/// of two paces that count as equal.
const WATCHED: usize = 4;
const ENOUGH: u64 = 8;
const EQUAL: f64 = 0.25;

/// Multiple of its interval after which an optimizer is not expected to step again.
const LONG_AGO: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct Beside(Vec<Other>);

/// Another optimizer, and its steps.
#[derive(Debug)]
struct Other {
    address: usize,
    steps: u64,
    /// The followed optimizer's steps before the first and before the latest of them.
    first: u64,
    latest: u64,
}

impl Beside {
    /// Notes a step of the optimizer at this address, after `completed` steps of the followed one.
    pub(super) fn stepped(&mut self, address: usize, completed: u64) {
        if let Some(other) = self.0.iter_mut().find(|other| other.address == address) {
            other.steps += 1;
            other.latest = completed;
        } else if self.0.len() < WATCHED {
            self.0.push(Other { address, steps: 1, first: completed, latest: completed });
        }
    }

    pub(super) fn forget(&mut self, address: usize) {
        self.0.retain(|other| other.address != address);
    }

    /// The steps of one that steps more or less often than the followed optimizer, and the steps of that
    /// optimizer since then.
    pub(super) fn uneven(&self, completed: u64) -> Option<(u64, u64)> {
        let known = self.0.iter().map(|other| (other, completed.saturating_sub(other.first)));
        let mut uneven = known.filter(|(other, of)| {
            let is_known = other.steps >= ENOUGH && *of >= ENOUGH;
            let passed = completed.saturating_sub(other.latest);
            let is_over = passed > LONG_AGO * of.div_ceil(other.steps.max(1));
            is_known && !is_over && (other.steps as f64 / *of as f64 - 1.0).abs() > EQUAL
        });
        uneven.next().map(|(other, of)| (other.steps, of))
    }
}
