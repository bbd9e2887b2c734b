//! The bounded queue to the viewer: drops frames when it is full, and counts the loss in later frames.

use std::collections::HashMap;

use tokio::sync::mpsc::{Sender, error::TrySendError};
use xpu_wire::{frame::Frame, id::HostName};

use crate::arrival::{Arrival, Endpoint, Link};

/// Streams whose numbers are followed: an overview and events of each job of each host.
const STREAMS: usize = 65_536;

pub(super) struct Outbox {
    /// live --Arrival--> watch, status, demo
    arrivals: Sender<Arrival>,
    /// The last number of each stream, by host and topic.
    numbers: HashMap<(HostName, Vec<u8>), u64>,
    /// Frames of each host that were lost on the way or dropped here.
    missed: HashMap<HostName, u64>,
}

impl Outbox {
    pub(super) fn new(arrivals: Sender<Arrival>) -> Self {
        Self { arrivals, numbers: HashMap::new(), missed: HashMap::new() }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.arrivals.is_closed()
    }

    /// Takes a frame of a published stream. A gap in the stream's numbers is a loss.
    pub(super) fn push_published(&mut self, topic: &[u8], frame: Frame) {
        if self.numbers.len() >= STREAMS {
            self.numbers.clear();
        }
        let last = self.numbers.insert((frame.host.clone(), topic.to_vec()), frame.number);
        let gap = last.map_or(0, |last| frame.number.saturating_sub(last.saturating_add(1)));
        if gap > 0 {
            self.miss(&frame.host, gap);
        }
        self.push(frame);
    }

    /// Begins a subscription to the topics that begin with `prefix`: earlier frames do not count as lost.
    pub(super) fn begin(&mut self, prefix: &str) {
        self.numbers.retain(|(_, topic), _| !topic.starts_with(prefix.as_bytes()));
    }

    pub(super) fn push(&mut self, mut frame: Frame) {
        let missed = self.missed.get(&frame.host).copied().unwrap_or(0);
        match self.arrivals.try_reserve() {
            Ok(slot) => {
                frame.lost = frame.lost.saturating_add(missed);
                slot.send(Arrival::Frame(Box::new(frame)));
                return;
            }
            Err(TrySendError::Closed(())) => return,
            Err(TrySendError::Full(())) => {}
        }
        self.miss(&frame.host, 1);
    }

    fn miss(&mut self, host: &HostName, frames: u64) {
        if self.missed.len() >= STREAMS {
            self.missed.clear();
        }
        let missed = self.missed.entry(host.clone()).or_default();
        *missed = missed.saturating_add(frames);
    }

    /// Reports a host's own name; `false` if the queue is full.
    pub(super) fn name(&self, endpoint: &Endpoint, host: &HostName) -> bool {
        self.arrivals.try_send(Arrival::Name(endpoint.clone(), host.clone())).is_ok()
    }

    /// Reports a connection's state; `false` if the queue is full, so that the caller must report it again.
    pub(super) fn report(&self, endpoint: &Endpoint, link: &Link) -> bool {
        self.arrivals.try_send(Arrival::Link(endpoint.clone(), link.clone())).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;
    use xpu_wire::{frame::Body, unit::Moment};

    use super::*;

    fn frame(number: u64) -> Frame {
        Frame { host: "a".into(), number, now: Moment(0), lost: 0, body: Body::Goodbye }
    }

    fn lost(receiver: &mut mpsc::Receiver<Arrival>) -> u64 {
        match receiver.try_recv() {
            Ok(Arrival::Frame(frame)) => frame.lost,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_gap_in_the_numbers_and_a_full_queue_are_both_reported() {
        let (sender, mut receiver) = mpsc::channel(2);
        let mut outbox = Outbox::new(sender);
        outbox.push_published(b"j/o", frame(7));
        outbox.push_published(b"j/o", frame(10));
        outbox.push_published(b"j/o", frame(11));
        assert_eq!((lost(&mut receiver), lost(&mut receiver)), (0, 2));
        outbox.push_published(b"j/o", frame(12));
        assert_eq!(lost(&mut receiver), 3);
    }

    #[test]
    fn a_restarted_collector_has_lost_no_frames() {
        let (sender, mut receiver) = mpsc::channel(8);
        let mut outbox = Outbox::new(sender);
        for number in [900, 0, 1] {
            outbox.push_published(b"j/o", frame(number));
            assert_eq!(lost(&mut receiver), 0);
        }
    }

    #[test]
    fn frames_before_a_subscription_are_not_counted_as_lost() {
        let (sender, mut receiver) = mpsc::channel(8);
        let mut outbox = Outbox::new(sender);
        outbox.push_published(b"j/r/1/", frame(7));
        outbox.push_published(b"j/o", frame(7));
        outbox.begin("j/r/1/");
        outbox.push_published(b"j/r/1/", frame(71));
        outbox.push_published(b"j/r/1/", frame(72));
        assert_eq!([(); 4].map(|()| lost(&mut receiver)), [0; 4]);
        outbox.push_published(b"j/o", frame(9));
        assert_eq!(lost(&mut receiver), 1, "of what was subscribed to all the while a gap is a loss");
    }

    #[test]
    fn an_update_without_room_is_kept_by_the_sender() {
        let (sender, mut receiver) = mpsc::channel(1);
        let outbox = Outbox::new(sender);
        let endpoint =
            Endpoint { host: "a".to_owned(), base: xpu_wire::endpoint::BasePort::DEFAULT, ssh: None };
        assert!(outbox.report(&endpoint, &Link::Up));
        assert!(!outbox.report(&endpoint, &Link::Up));
        receiver.try_recv().unwrap();
        assert!(outbox.report(&endpoint, &Link::Up));
    }
}
