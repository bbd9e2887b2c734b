//! The work that the program reports: `step(tokens=, samples=, loss=)`.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use xpu_wire::frame::Work;

/// Totals since the process began. Any thread that marks steps updates them.
#[derive(Debug)]
pub(crate) struct Working {
    tokens: AtomicU64,
    samples: AtomicU64,
    /// The bits of the last loss; NaN before the first report.
    loss: AtomicU64,
}

impl Default for Working {
    fn default() -> Self {
        Self {
            tokens: AtomicU64::new(0),
            samples: AtomicU64::new(0),
            loss: AtomicU64::new(f64::NAN.to_bits()),
        }
    }
}

impl Working {
    /// Adds a step's work. A NaN `loss` means that none is known, and keeps the last one: a program that
    /// computes its loss every tenth step reports none in between. A loss that itself is NaN is passed as
    /// infinite.
    pub(crate) fn add(&self, tokens: u64, samples: u64, loss: f64) {
        self.tokens.fetch_add(tokens, Relaxed);
        self.samples.fetch_add(samples, Relaxed);
        if !loss.is_nan() {
            self.loss.store(loss.to_bits(), Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Work {
        let loss = f64::from_bits(self.loss.load(Relaxed));
        Work {
            tokens: self.tokens.load(Relaxed),
            samples: self.samples.load(Relaxed),
            loss: (!loss.is_nan()).then_some(loss),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_adds_up_and_the_loss_stays_until_the_next() {
        let working = Working::default();
        assert_eq!(working.read(), Work::default());
        working.add(4096, 2, 3.5);
        working.add(4096, 2, f64::NAN);
        assert_eq!(working.read(), Work { tokens: 8192, samples: 4, loss: Some(3.5) });
        working.add(0, 0, f64::INFINITY);
        assert_eq!(working.read().loss, Some(f64::INFINITY), "a loss that has run away is news");
    }
}
