//! Remembers who requested each capture under way, so that the ranks' answers reach the requester.

use std::collections::VecDeque;

use crate::address::Address;

/// Number of captures remembered. A viewer makes one or two at a time.
const REMEMBERED: usize = 64;

#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// The number and the requester of each capture, the latest last.
    asked: VecDeque<(u64, Address)>,
}

impl Captures {
    pub(crate) fn asked(&mut self, number: u64, viewer: &Address) {
        self.asked.retain(|(known, _)| *known != number);
        if self.asked.len() >= REMEMBERED {
            self.asked.pop_front();
        }
        self.asked.push_back((number, viewer.clone()));
    }

    /// The requester of this capture.
    pub(crate) fn viewer(&self, number: u64) -> Option<&Address> {
        self.asked.iter().find(|(known, _)| *known == number).map(|(_, viewer)| viewer)
    }
}
