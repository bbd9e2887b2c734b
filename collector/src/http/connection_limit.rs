//! Limits the number of connections, in total and per address. A new connection may take the place of the
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
    /// Shortest time that a connection keeps its place.
    pub(super) grace: Duration,
}

#[derive(Debug)]
pub(super) struct ConnectionLimit {
    bounds: Bounds,
    /// The connections in order of arrival.
    guests: Mutex<Vec<Guest>>,
}

#[derive(Clone, Debug)]
struct Guest {
    peer: IpAddr,
    since: Instant,
    gone: Arc<Notify>,
}

/// A connection's place, until this is dropped or lost.
#[derive(Debug)]
pub(super) struct Place {
    of: Arc<ConnectionLimit>,
    guest: Guest,
}

impl ConnectionLimit {
    pub(super) fn new(bounds: Bounds) -> Arc<Self> {
        Arc::new(Self { bounds, guests: Mutex::default() })
    }

    /// Gives a place. If the peer has the most it may have, it takes its own oldest place. If all are taken,
    /// it takes the oldest place of the address that has most. `None` if that place is too new to be lost.
    pub(super) fn enter(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let now = Instant::now();
        let mut guests = self.guests();
        let of = |peer: IpAddr, guests: &[Guest]| guests.iter().filter(|guest| guest.peer == peer).count();
        let from = if of(peer, &guests) >= self.bounds.of_one {
            Some(peer)
        } else if guests.len() >= self.bounds.all {
            guests.iter().map(|guest| guest.peer).max_by_key(|&peer| of(peer, &guests))
        } else {
            None
        };
        if let Some(from) = from {
            let oldest = guests.iter().position(|guest| guest.peer == from)?;
            if now.saturating_duration_since(guests[oldest].since) < self.bounds.grace {
                return None;
            }
            guests.remove(oldest).gone.notify_one();
        }
        let guest = Guest { peer, since: now, gone: Arc::default() };
        guests.push(guest.clone());
        drop(guests);
        Some(Place { of: Arc::clone(self), guest })
    }

    fn guests(&self) -> MutexGuard<'_, Vec<Guest>> {
        self.guests.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    pub(super) fn peer(&self) -> IpAddr {
        self.guest.peer
    }

    /// Returns when another client has taken this place.
    pub(super) async fn lost(&self) {
        self.guest.gone.notified().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.of.guests().retain(|guest| !Arc::ptr_eq(&guest.gone, &self.guest.gone));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(n: u8) -> IpAddr {
        IpAddr::from([127, 0, 0, n])
    }

    fn is_lost(place: &Place) -> bool {
        !place.of.guests().iter().any(|guest| Arc::ptr_eq(&guest.gone, &place.guest.gone))
    }

    #[test]
    fn connections_are_limited_per_address_and_in_total_and_released() {
        let limit = ConnectionLimit::new(Bounds { all: 6, of_one: 4, grace: Duration::from_hours(1) });
        let mut taken: Vec<_> = (0..4).map(|_| limit.enter(peer(1)).expect("a place")).collect();
        assert!(limit.enter(peer(1)).is_none());
        taken.pop();
        taken.extend([1, 2, 3].map(|n| limit.enter(peer(n)).expect("a place")));
        assert!(limit.enter(peer(4)).is_none(), "all are taken, and none for long");
        drop(taken);
        assert!(limit.guests().is_empty());
    }

    #[test]
    fn the_longest_waiting_connection_of_the_busiest_address_gives_way() {
        let limit = ConnectionLimit::new(Bounds { all: 6, of_one: 5, grace: Duration::ZERO });
        let quiet = limit.enter(peer(1)).expect("a place");
        let crowd: Vec<_> = (0..5).map(|_| limit.enter(peer(2)).expect("a place")).collect();
        let late = limit.enter(peer(3)).expect("a place of the crowd's");
        assert!(is_lost(&crowd[0]) && !is_lost(&quiet) && !is_lost(&late));
        let more: Vec<_> = (0..20).map(|_| limit.enter(peer(2)).expect("one of its own")).collect();
        assert!(crowd.iter().all(is_lost) && !is_lost(&quiet) && !is_lost(&late) && !is_lost(&more[19]));
    }
}
