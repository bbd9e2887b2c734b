//! The connection to the collector: ZMTP over the collector's Unix socket. It never waits.
//!
//! Messages are queued, and dropped if the queue is full. The server is trusted only if the kernel reports
//! that it runs as this user or as root. The size and rate of its messages are limited.

mod socket;

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

use socket::{Received, Socket};
use xpu_wire::zmtp::Dealer;

/// Maximum number of queued messages: a minute of summaries. Captured data waits elsewhere.
const QUEUE: usize = 64;

/// Maximum number of bytes of queued messages.
const QUEUE_BYTES: usize = 2 << 20;

/// Longest accepted message. An order has a few hundred bytes.
const LARGEST: usize = 64 << 10;

/// Messages accepted a second, and at once after a silence. A user interface sends only a few.
const RATE: u32 = 16;
const BURST: u32 = 64;

/// The pause between two attempts to connect, which doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// After a connection that lasted this long, the pause is short again.
const GOOD: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct Line {
    path: PathBuf,
    connection: Option<Connection>,
    /// The queued messages. The first is being sent while the connection has unsent bytes.
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    next_attempt: Instant,
    pause: Duration,
    allowance: Allowance,
}

#[derive(Debug)]
struct Connection {
    socket: Socket,
    dealer: Dealer,
    since: Instant,
    /// Whether the first message was passed to the connection.
    sends: bool,
}

impl Line {
    pub(crate) fn new(path: PathBuf, now: Instant) -> Self {
        Self {
            path,
            connection: None,
            queue: VecDeque::new(),
            queued: 0,
            next_attempt: now,
            pause: FIRST_PAUSE,
            allowance: Allowance::new(now),
        }
    }

    /// Queues a message. `false` if it does not fit.
    pub(crate) fn queue(&mut self, message: Vec<u8>) -> bool {
        let fits = self.queue.is_empty() || self.queued + message.len() <= QUEUE_BYTES;
        let has_room = fits && self.queue.len() < QUEUE && self.queue.try_reserve(1).is_ok();
        if has_room {
            self.queued += message.len();
            self.queue.push_back(message);
        }
        has_room
    }

    /// Sends and receives as much as possible without waiting.
    pub(crate) fn visit(&mut self, now: Instant) {
        if self.connection.is_none() && now >= self.next_attempt {
            self.connection = Socket::connect(&self.path).map(|socket| {
                let dealer = Dealer::new(LARGEST);
                Connection { socket, dealer, since: now, sends: false }
            });
            if self.connection.is_none() {
                self.hold_off(now);
            }
        }
        let Some(connection) = &mut self.connection else { return };
        let holds = connection.exchange(&mut self.queue, &mut self.queued, &self.allowance, now);
        if !holds {
            if now.duration_since(connection.since) >= GOOD {
                self.pause = FIRST_PAUSE;
            }
            self.connection = None;
            self.hold_off(now);
        }
    }

    /// The next received message, within the rate limit.
    pub(crate) fn receive(&mut self, now: Instant) -> Option<Vec<u8>> {
        let connection = self.connection.as_mut()?;
        if !self.allowance.is_left(now) {
            return None;
        }
        let message = connection.dealer.message()?;
        self.allowance.take(now);
        Some(message)
    }

    /// Whether nothing is left to send, or there is no connection.
    pub(crate) fn is_done(&self) -> bool {
        self.connection
            .as_ref()
            .is_none_or(|connection| self.queue.is_empty() && connection.dealer.unsent().is_empty())
    }

    fn hold_off(&mut self, now: Instant) {
        self.next_attempt = now + self.pause;
        self.pause = LONGEST_PAUSE.min(self.pause * 2);
    }
}

impl Connection {
    /// Sends and receives. `false` if the connection has ended. A message that was not sent completely stays
    /// in the queue.
    fn exchange(
        &mut self,
        queue: &mut VecDeque<Vec<u8>>,
        queued: &mut usize,
        allowance: &Allowance,
        now: Instant,
    ) -> bool {
        if !self.socket.is_ours() {
            // The program has closed the descriptor, and may have opened another file under its number.
            return false;
        }
        // Beyond the rate limit, data stays unread.
        if allowance.is_left(now) {
            match self.socket.receive() {
                Received::Nothing => {}
                Received::Bytes(bytes) => {
                    if self.dealer.receive(bytes).is_err() {
                        return false;
                    }
                }
                Received::End => return false,
            }
        }
        loop {
            while !self.dealer.unsent().is_empty() {
                match self.socket.send(self.dealer.unsent()) {
                    Some(0) => return true,
                    Some(count) => self.dealer.written(count),
                    None => return false,
                }
            }
            if std::mem::take(&mut self.sends)
                && let Some(sent) = queue.pop_front()
            {
                *queued -= sent.len();
            }
            let Some(next) = queue.front().filter(|_| self.dealer.is_ready()) else { return true };
            self.dealer.send(next);
            self.sends = true;
        }
    }
}

/// How many more messages are accepted.
#[derive(Debug)]
struct Allowance {
    left: u32,
    since: Instant,
}

impl Allowance {
    fn new(now: Instant) -> Self {
        Self { left: BURST, since: now }
    }

    fn now(&self, now: Instant) -> u32 {
        let earned = now.saturating_duration_since(self.since).as_millis() as u64 * u64::from(RATE) / 1000;
        self.left.saturating_add(earned as u32).min(BURST)
    }

    fn is_left(&self, now: Instant) -> bool {
        self.now(now) > 0
    }

    fn take(&mut self, now: Instant) {
        let left = self.now(now);
        if left > self.left || left == BURST {
            self.since = now;
        }
        self.left = left.saturating_sub(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_allowed_in_a_burst_and_then_at_a_fixed_rate() {
        let start = Instant::now();
        let mut allowance = Allowance::new(start);
        let mut taken = |now| {
            let mut count = 0;
            while allowance.is_left(now) {
                allowance.take(now);
                count += 1;
            }
            count
        };
        assert_eq!(taken(start), BURST);
        let later: u32 = (1..=1000).map(|ms| taken(start + Duration::from_millis(ms))).sum();
        assert!((RATE - 1..=RATE).contains(&later), "{later}");
        assert_eq!(taken(start + Duration::from_mins(1)), BURST);
    }

    #[test]
    fn a_full_queue_drops_and_one_large_message_fits() {
        let mut line = Line::new("/nowhere/at/all".into(), Instant::now());
        assert!(line.queue(vec![0; QUEUE_BYTES + 1]));
        assert!(!line.queue(vec![0; 1]));
        let mut line = Line::new("/nowhere/at/all".into(), Instant::now());
        assert_eq!((0..QUEUE + 3).filter(|_| line.queue(vec![0; 100])).count(), QUEUE);
        line.visit(Instant::now());
        assert!(line.is_done(), "nobody takes it");
    }
}
