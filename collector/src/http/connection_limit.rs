//! Limits the number of connections, in total and per address. A new connection may take the slot of the
//! oldest.

use std::{
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) all: usize,
    pub(super) of_one: usize,
    /// Shortest time that a connection keeps its slot.
    pub(super) grace: Duration,
}

#[derive(Debug)]
pub(super) struct ConnectionLimit {
    bounds: Bounds,
    /// The connections in order of arrival.
    clients: Mutex<Vec<Client>>,
}

#[derive(Clone, Debug)]
struct Client {
    peer: IpAddr,
    since: Instant,
    gone: Arc<Notify>,
}

/// A connection's slot, until this is dropped or lost.
#[derive(Debug)]
pub(super) struct Slot {
    of: Arc<ConnectionLimit>,
    client: Client,
}

impl ConnectionLimit {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, clients: Mutex::default() })
    }

    /// Gives a slot. If the peer has the most it may have, it takes its own oldest slot. If all are taken,
    /// it takes the oldest slot of the address that has most. `None` if that slot is too new to be lost.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Slot> {
        let now = Instant::now();
        let mut clients = self.clients();
        let of =
            |peer: IpAddr, clients: &[Client]| clients.iter().filter(|client| client.peer == peer).count();
        let from = if of(peer, &clients) >= self.bounds.of_one {
            Some(peer)
        } else if clients.len() >= self.bounds.all {
            clients.iter().map(|client| client.peer).max_by_key(|&peer| of(peer, &clients))
        } else {
            None
        };
        if let Some(from) = from {
            let oldest = clients.iter().position(|client| client.peer == from)?;
            if now.saturating_duration_since(clients[oldest].since) < self.bounds.grace {
                return None;
            }
            clients.remove(oldest).gone.notify_one();
        }
        let client = Client { peer, since: now, gone: Arc::default() };
        clients.push(client.clone());
        drop(clients);
        Some(Slot { of: Arc::clone(self), client })
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Client>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    pub(super) fn peer(&self) -> IpAddr {
        self.client.peer
    }

    /// Returns when another client has taken this slot.
    pub(super) async fn lost(&self) {
        self.client.gone.notified().await;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.of.clients().retain(|client| !Arc::ptr_eq(&client.gone, &self.client.gone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, n])
    }

    fn is_lost(slot: &Slot) -> bool {
        !slot.of.clients().iter().any(|client| Arc::ptr_eq(&client.gone, &slot.client.gone))
    }

    #[test]
    fn connections_are_limited_per_address_and_in_total_and_released() {
        let limit = ConnectionLimit::new(Bounds { all: 6, of_one: 4, grace: Duration::from_hours(1) });
        let mut taken: Vec<_> = (0..4).map(|_| limit.enter(peer(1)).expect("a slot")).collect();
        assert!(limit.enter(peer(1)).is_none());
        taken.pop();
        taken.extend([1, 2, 3].map(|n| limit.enter(peer(n)).expect("a slot")));
        assert!(limit.enter(peer(4)).is_none(), "all are taken, and none for long");
        drop(taken);
        assert!(limit.clients().is_empty());
    }

    #[test]
    fn the_longest_waiting_connection_of_the_busiest_address_gives_way() {
        let limit = ConnectionLimit::new(Bounds { all: 6, of_one: 5, grace: Duration::ZERO });
        let quiet = limit.enter(peer(1)).expect("a slot");
        let crowd: Vec<_> = (0..5).map(|_| limit.enter(peer(2)).expect("a slot")).collect();
        let late = limit.enter(peer(3)).expect("a slot of the crowd's");
        assert!(is_lost(&crowd[0]) && !is_lost(&quiet) && !is_lost(&late));
        let more: Vec<_> = (0..20).map(|_| limit.enter(peer(2)).expect("one of its own")).collect();
        assert!(crowd.iter().all(is_lost) && !is_lost(&quiet) && !is_lost(&late) && !is_lost(&more[19]));
    }
}
