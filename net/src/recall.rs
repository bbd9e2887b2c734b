//! Merges the histories of all hosts, because the ranks of a collective can be matched only if their digests
//! of one second are together.

use std::time::{Duration, Instant};

use xpu_wire::{
    codec,
    frame::{Body, Frame, History, Packed, Request},
    id::HostName,
    unit::Moment,
};

/// Longest wait for the hosts' histories.
const PATIENCE: Duration = Duration::from_secs(2);

/// Silence after which answers through a relay count as complete: behind a relay, the last host cannot be
/// recognised.
const QUIET: Duration = Duration::from_millis(150);

/// Largest history in memory, in bytes. A host whose history does not fit contributes none.
const MOST_BYTES: usize = 192 << 20;

/// Largest frame to forward, because it may be recorded.
const PART: usize = 2 << 20;

/// Length of the history to request.
const LENGTH: Duration = Duration::from_hours(24);

/// The request for the history of one of this number of hosts.
pub fn request(hosts: usize) -> Request {
    request_of(LENGTH, hosts)
}

/// Same as [`request`], for a shorter history.
pub fn request_of(length: Duration, hosts: usize) -> Request {
    Request::ThinnedHistory { length: length.into(), digests: digests(hosts) }
}

/// The number of digests of a rank to request from this number of hosts, for as much as a viewer of hosts with
/// eight ranks reads in a second or two. A rank has about 2,600 digests of a day, none of which is then merged.
pub fn digests(hosts: usize) -> u32 {
    match hosts {
        ..=4 => 3000,
        5..=8 => 1320,
        9..=16 => 660,
        17..=128 => 200,
        // 320,000 digests of 10,000 ranks.
        _ => (25_600 / hosts as u32).max(32),
    }
}

/// The history that has arrived, until all hosts have sent theirs.
#[derive(Debug)]
pub struct Recall {
    since: Instant,
    heard: Instant,
    /// The frames, each with its age when it was sent, by its host's clock.
    frames: Vec<(Duration, Vec<u8>)>,
    bytes: usize,
    /// Other frames that arrived meanwhile, with their topics. An answer's topic is empty.
    held: Vec<(Vec<u8>, Frame)>,
    /// Whether the state of a host, or of a relay, has arrived.
    is_answered: bool,
    /// Whether answers come through a relay, and so in any order.
    is_relayed: bool,
}

impl Recall {
    pub fn begin(now: Instant) -> Self {
        Self {
            since: now,
            heard: now,
            frames: Vec::new(),
            bytes: 0,
            held: Vec::new(),
            is_answered: false,
            is_relayed: false,
        }
    }

    /// Takes a frame before the history is complete. An answer's topic is empty.
    pub fn take(&mut self, topic: Vec<u8>, frame: Frame, now: Instant) {
        if topic.is_empty() {
            self.heard = now;
        }
        self.is_relayed |= matches!(frame.body, Body::Relay(_));
        self.is_answered |= matches!(frame.body, Body::Relay(_) | Body::Snapshot(_));
        match &frame.body {
            Body::History(history) if self.bytes + history.frames.len() <= MOST_BYTES => {
                self.bytes += history.frames.len();
                let past = history
                    .frames
                    .split()
                    .filter_map(|bytes| Some((frame.now.since(codec::published(bytes)?), bytes.to_vec())));
                self.frames.extend(past);
            }
            Body::History(_) => {}
            _ => self.held.push((topic, frame)),
        }
    }

    /// Whether a host, or a relay, has sent its state.
    pub fn is_answered(&self) -> bool {
        self.is_answered
    }

    /// Whether to stop waiting.
    pub fn is_over(&self, all_settled: bool, now: Instant) -> bool {
        let is_quiet = !self.is_relayed || now.duration_since(self.heard) >= QUIET;
        (all_settled && is_quiet) || now.duration_since(self.since) >= PATIENCE
    }

    /// The whole history, oldest first, and then the frames that arrived meanwhile, with their topics.
    pub fn frames(mut self) -> impl Iterator<Item = (Vec<u8>, Frame)> {
        // The sort is stable, so frames of one host and moment keep their order.
        self.frames.sort_by_key(|(ago, _)| std::cmp::Reverse(*ago));
        let mut past = self.frames.into_iter().peekable();
        // Packed when it is needed, because all of it would take as much memory again.
        let parts = std::iter::from_fn(move || {
            let mut part = Packed::default();
            part.push(&past.next()?.1);
            while let Some((_, frame)) = past.next_if(|(_, frame)| part.len() + frame.len() <= PART) {
                part.push(&frame);
            }
            Some(part)
        });
        let frame = |frames| Frame {
            host: HostName::default(),
            number: 0,
            now: Moment::default(),
            lost: 0,
            body: Body::History(History { frames, more: false }),
        };
        parts.map(move |part| (Vec::new(), frame(part))).chain(self.held)
    }
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;

    use super::*;

    /// Two hosts; the second one's clock is a minute behind. Their digests of one second end up next to each
    /// other.
    #[test]
    fn digests_of_one_second_are_grouped_despite_clock_differences() {
        let simulation = Simulation::new(1, 2, 2);
        let (now, behind) = (Instant::now(), 60_000_000_000);
        let mut recall = Recall::begin(now);
        for host in 0..2_u64 {
            let clock = |second: u64| Moment(second * 1_000_000_000 - host * behind);
            let mut frames = Packed::default();
            for second in 100..104 {
                let digest = simulation.digests(second).remove(host as usize);
                frames.push(&codec::encode(&Frame { now: clock(second), ..digest }));
            }
            let digest = simulation.digests(104).remove(host as usize);
            let body = Body::History(History { frames, more: false });
            recall.take(Vec::new(), Frame { now: clock(104), body, ..digest }, now);
        }
        let (_, sent) = recall.frames().next().expect("the history");
        let Body::History(history) = &sent.body else { unreachable!() };
        let hosts: Vec<_> = history.frames.frames().map(|frame| frame.host).collect();
        let (a, b) = (hosts[0].clone(), hosts[1].clone());
        assert_ne!(a, b);
        assert_eq!(hosts, [&a, &b, &a, &b, &a, &b, &a, &b].map(Clone::clone));
    }

    #[test]
    fn a_host_that_does_not_answer_is_not_awaited_for_long() {
        let now = Instant::now();
        let mut recall = Recall::begin(now);
        assert!(!recall.is_over(false, now) && recall.is_over(true, now));
        assert!(recall.is_over(false, now + PATIENCE));
        let body = Body::Relay(xpu_wire::frame::RelaySnapshot {
            version: String::new(),
            started: Moment(1),
            base: xpu_wire::endpoint::BasePort::DEFAULT,
            hosts: Vec::new(),
        });
        let frame = Frame { host: "relay".into(), number: 0, now: Moment(1), lost: 0, body };
        recall.take(Vec::new(), frame, now);
        assert!(!recall.is_over(true, now) && recall.is_over(true, now + QUIET));
    }
}
