//! How long products were held up by communication, as far as a sample of it tells.

use std::sync::atomic::Ordering::Relaxed;

use xpu_shared::{sampling::Rate, unit::Nanoseconds};

use super::Fold;
use crate::{
    observer::Observer,
    rate::{self, Class},
};

/// Nanoseconds: each timed wait, or collective on the stream of the products, as often as it stands for.
#[derive(Debug, Default)]
pub(super) struct Exposed(u64);

impl Exposed {
    /// `stands_for` is none of what holds no products up.
    pub(super) fn add(&mut self, observer: &Observer, duration: Nanoseconds, stands_for: Option<Rate>) {
        let Some(rate) = stands_for else { return };
        // A wait for what is done already reads as long as an empty pair of events.
        let gap = observer.overhead.event_gap.load(Relaxed);
        let held = duration.0.saturating_sub(gap).saturating_mul(rate.stands_for());
        self.0 = self.0.saturating_add(held);
    }
}

impl Fold {
    /// Since the process began. `None` where nothing tells: neither products nor communication were seen yet, some of it is in graphs,
    /// or nothing is timed.
    pub(crate) fn exposed_for(&self, observer: &Observer) -> Option<Nanoseconds> {
        let classes = [Class::Wait, Class::Collective, Class::PointToPoint];
        let timed = classes.iter().all(|&class| rate::of(class) != Rate::NEVER);
        let replayed = observer.lanes().any(|lane| {
            let replayed = &lane.counters.replayed;
            replayed.collectives.get() + replayed.point_to_point.get() > 0
        });
        (timed && !replayed && observer.exposure.is_known()).then_some(Nanoseconds(self.exposed.0))
    }
}
