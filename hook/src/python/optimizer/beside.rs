//! The optimizers that step beside the followed one: a GAN's critic may step five times for each step of the
//! generator, so which of them makes a step of the program is the program's convention.

use super::Optimizer;

/// Number of optimizers that are watched.
const WATCHED: usize = 4;

/// Steps after which an optimizer's pace is known.
const ENOUGH: u64 = 8;

/// Largest difference between two paces that count as equal, as a share.
const EQUAL: f64 = 0.25;

/// Multiple of its interval after which an optimizer is not expected to step again.
const LONG_AGO: u64 = 4;

#[derive(Debug, Default)]
pub(super) struct Beside(Vec<Other>);

/// Another optimizer, and its steps.
#[derive(Debug)]
struct Other {
    address: usize,
    /// The first parameter group that stepped. Others of the same optimizer are not counted.
    parameter: usize,
    steps: u64,
    /// The followed optimizer's steps before the first and before the latest of them.
    first: u64,
    latest: u64,
}

impl Beside {
    /// Notes a step of this optimizer, after `completed` steps of the followed one.
    pub(super) fn stepped(&mut self, optimizer: &Optimizer, completed: u64) {
        let Optimizer { address, parameter, .. } = *optimizer;
        if let Some(other) = self.0.iter_mut().find(|other| other.address == address) {
            if other.parameter == parameter {
                other.steps += 1;
                other.latest = completed;
            }
        } else if self.0.len() < WATCHED {
            self.0.push(Other { address, parameter, steps: 1, first: completed, latest: completed });
        }
    }

    /// Begins again with all optimizers, because the followed one's count does.
    pub(super) fn clear(&mut self) {
        self.0.clear();
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
