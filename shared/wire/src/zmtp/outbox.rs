//! Bytes to write to the peer.

use super::{
    command,
    frame::{self, Kind},
};

/// Capacity that is kept once all is written.
const KEPT: usize = 16 * 1024;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    bytes: Vec<u8>,
    gone: usize,
    /// Bytes up to the end of the unsent PONG: there is one at a time, however many PINGs arrive.
    pong: usize,
    /// The context of the last PING since that PONG. Its own PONG is sent once the previous one is written.
    /// PINGs in between get no PONG: the others already show the peer that the connection is alive.
    owed: Option<Vec<u8>>,
}

impl Outbox {
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) fn queue_message(&mut self, message: &[u8]) {
        frame::write(Kind::Message { more: false }, message, &mut self.bytes);
    }

    pub(super) fn pong(&mut self, context: &[u8]) {
        if self.pong == 0 {
            self.queue(&command::pong(context));
            self.pong = self.unsent().len();
        } else {
            self.owed = Some(context.to_vec());
        }
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }

    pub(super) fn written(&mut self, count: usize) {
        let count = count.min(self.unsent().len());
        self.gone += count;
        self.pong = self.pong.saturating_sub(count);
        if self.gone == self.bytes.len() {
            self.gone = 0;
            self.bytes.clear();
            self.bytes.shrink_to(KEPT);
        } else if self.gone > self.bytes.len() / 2 {
            // At most as many bytes move as were sent, so the cost per byte does not depend on the sizes of
            // the writes.
            self.bytes.drain(..self.gone);
            self.gone = 0;
        }
        if self.pong == 0
            && let Some(context) = self.owed.take()
        {
            self.pong(&context);
        }
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity() + self.owed.as_ref().map_or(0, Vec::capacity)
    }
}
