//! A communicator's share of a group, which launches as one.

use xpu_wire::collective::Operation;

use super::Message;
use crate::observe::record::MessageKey;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Share {
    pub(super) collectives: u64,
    bytes: u64,
    bus_bytes: u64,
    sent: OneDirection,
    received: OneDirection,
}

/// All sends, or all receives.
#[derive(Clone, Copy, Debug)]
struct OneDirection {
    number: u64,
    /// Bytes without messages from the rank to itself.
    bus_bytes: u64,
    shortest: u64,
    longest: u64,
    /// Sum of the peers, and of their squares: enough to check that every rank appears once.
    peers: [u64; 2],
    /// Identifies the first message.
    first: Option<MessageKey>,
}

/// The key under which a share is timed: operation, message size, and bytes over the bus.
pub(super) type ShareKey = (Operation, u64, u64);

impl Share {
    pub(super) fn add(&mut self, message: &Message) {
        match message.operation {
            Operation::Send => self.sent.add(message),
            Operation::Recv => self.received.add(message),
            operation if operation.is_collective() => {
                self.collectives += 1;
                self.bytes += message.bytes;
                self.bus_bytes += message.bus_bytes;
            }
            // One-sided operations are only counted.
            _ => {}
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.collectives += other.collectives;
        self.bytes += other.bytes;
        self.bus_bytes += other.bus_bytes;
        self.sent.merge(&other.sent);
        self.received.merge(&other.received);
    }

    /// The key of the share. A single operation keeps its name. Sends and receives are an all-to-all if every
    /// rank appears once in each direction, with equal bytes; otherwise the direction with more bytes counts.
    /// A share that also has collectives is one fused operation. `single` is the first collective, or else
    /// the first operation; `own` is the rank in the communicator, and `size` the communicator's size.
    pub(super) fn key(&self, single: &Message, own: u32, size: u32) -> ShareKey {
        match (self.collectives, self.exchanged()) {
            (0 | 1, 0) | (0, 1) => (single.operation, single.bytes, single.bus_bytes),
            (0, _) => self.exchange(own, size),
            _ => {
                let (_, bytes, bus_bytes) = self.exchange(own, size);
                (Operation::Fused, self.bytes + bytes, self.bus_bytes + bus_bytes)
            }
        }
    }

    /// The send and the receive, if there is at most one of each. If their sizes differ, only the larger one,
    /// because it determines the time.
    pub(super) fn message_keys(&self) -> [Option<MessageKey>; 2] {
        let most = self.sent.bus_bytes.max(self.received.bus_bytes);
        [&self.sent, &self.received].map(|way| {
            let alone = self.sent.number <= 1 && self.received.number <= 1;
            way.first.filter(|_| alone && way.bus_bytes == most && most > 0)
        })
    }

    fn exchanged(&self) -> u64 {
        self.sent.number + self.received.number
    }

    /// Whether no other rank waits for any operation in it; its time is useless then.
    pub(super) fn is_one_sided(&self) -> bool {
        self.collectives + self.exchanged() == 0
    }

    fn exchange(&self, own: u32, size: u32) -> ShareKey {
        let each = self.sent.longest;
        let even = each == self.sent.shortest && [each; 2] == [self.received.shortest, self.received.longest];
        if even && self.sent.number > 1 && [self.sent, self.received].iter().all(|way| way.is_all(own, size))
        {
            let size = u64::from(size);
            // Counted like `ncclAlltoAll`, whether or not the messages include the rank's own part.
            return (Operation::AlltoAll, each.saturating_mul(size), each.saturating_mul(size - 1));
        }
        let bytes = self.sent.bus_bytes.max(self.received.bus_bytes);
        (Operation::SendRecv, bytes, bytes)
    }
}

impl Default for OneDirection {
    fn default() -> Self {
        Self { number: 0, bus_bytes: 0, shortest: u64::MAX, longest: 0, peers: [0; 2], first: None }
    }
}

impl OneDirection {
    fn add(&mut self, message: &Message) {
        let peer = u64::from(message.peer);
        self.merge(&Self {
            number: 1,
            bus_bytes: message.bus_bytes,
            shortest: message.bytes,
            longest: message.bytes,
            peers: [peer, peer * peer],
            first: message.key(),
        });
    }

    fn merge(&mut self, other: &Self) {
        self.number += other.number;
        self.bus_bytes += other.bus_bytes;
        self.shortest = self.shortest.min(other.shortest);
        self.longest = self.longest.max(other.longest);
        self.first = self.first.or(other.first);
        // An invalid peer has a large square; the wrapping sums then match no set of ranks.
        for (sum, more) in self.peers.iter_mut().zip(other.peers) {
            *sum = sum.wrapping_add(more);
        }
    }

    /// Whether the peers are all ranks of a communicator once each, with or without this rank.
    fn is_all(&self, own: u32, size: u32) -> bool {
        let (own, size) = (u64::from(own), u64::from(size));
        let last = size.saturating_sub(1);
        let all = [last * size / 2, (u128::from(last * size) * u128::from(2 * size - 1) / 6) as u64];
        match size.checked_sub(self.number) {
            Some(0) => self.peers == all,
            Some(1) => self.peers == [all[0] - own, all[1].wrapping_sub(own * own)],
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use xpu_wire::{datatype::DataType, ledger::NO_TICKET};

    use super::*;

    const OWN: u32 = 1;

    fn message(operation: Operation, bytes: u64, peer: u32) -> Message {
        Message {
            communicator: 0,
            ticket: NO_TICKET,
            operation,
            peer,
            pair: None,
            datatype: DataType::Float32,
            bytes,
            bus_bytes: if peer == OWN { 0 } else { bytes },
            stream: ptr::null_mut(),
            observed: true,
            graph_capture: None,
        }
    }

    /// The key of a group on rank 1, from the bytes and peers of its sends and receives.
    fn exchange(size: u32, sent: &[(u64, u32)], received: &[(u64, u32)]) -> ShareKey {
        let mut share = Share::default();
        let sends = sent.iter().map(|&(bytes, peer)| message(Operation::Send, bytes, peer));
        let receives = received.iter().map(|&(bytes, peer)| message(Operation::Recv, bytes, peer));
        let all: Vec<_> = sends.chain(receives).collect();
        for message in &all {
            share.add(message);
        }
        share.key(&all[0], OWN, size)
    }

    #[test]
    fn the_same_to_and_from_each_rank_is_an_all_to_all() {
        let all: Vec<_> = (0..4).map(|peer| (100, peer)).collect();
        let others: Vec<_> = all.iter().copied().filter(|&(_, peer)| peer != OWN).collect();
        for messages in [&all, &others] {
            assert_eq!(exchange(4, messages, messages), (Operation::AlltoAll, 400, 300));
        }
    }

    #[test]
    fn anything_else_is_sent_and_received() {
        let both = |size, messages: &[(u64, u32)]| exchange(size, messages, messages);
        let to_neighbours = both(2, &[(100, 0)]);
        assert_eq!(to_neighbours, (Operation::SendRecv, 100, 100), "two ranks that swap are a pipeline");
        let twice_to_one = both(3, &[(100, 0), (100, 0)]);
        assert_eq!(twice_to_one, (Operation::SendRecv, 200, 200), "as many as ranks, but not to each");
        let uneven = both(3, &[(100, 0), (70, 1), (30, 2)]);
        assert_eq!(uneven, (Operation::SendRecv, 130, 130), "without what stays here");
        let more_received = exchange(4, &[(10, 0)], &[(10, 0), (20, 2)]);
        assert_eq!(more_received, (Operation::SendRecv, 30, 30));
    }

    #[test]
    fn one_operation_keeps_its_name_and_a_mixture_is_fused() {
        assert_eq!(exchange(4, &[], &[(10, 0)]), (Operation::Recv, 10, 10));
        let mut share = Share::default();
        let reduced = Message { bus_bytes: 150, ..message(Operation::AllReduce, 100, 0) };
        share.add(&reduced);
        assert_eq!(share.key(&reduced, OWN, 4), (Operation::AllReduce, 100, 150));
        share.add(&message(Operation::Send, 40, 0));
        assert_eq!(share.key(&reduced, OWN, 4), (Operation::Fused, 140, 190));
        let mut signals = Share::default();
        signals.add(&message(Operation::Signal, 0, 0));
        assert!(signals.is_one_sided() && !share.is_one_sided());
    }
}
