//! Connections: as many as there are seats, each for a bounded time.

use std::{
    collections::HashMap,
    io,
    net::{IpAddr, TcpListener},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{app::App, routes};

/// Connections at a time: Prometheus needs one, a few people and scripts some more.
const SEATS: usize = 128;

/// Of one address, so that one that is broken leaves room for the others.
const SEATS_OF_ONE: usize = 48;

/// How long the head of a request may take, and how long a connection may wait for the next.
const HEAD: Duration = Duration::from_secs(5);

/// How long a connection may last in all; Prometheus opens another.
const LIFE: Duration = Duration::from_mins(2);

/// Head of a request, in bytes and in lines.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_LINES: usize = 64;

/// Pause after the system refused a connection: mostly for want of descriptors.
const REFUSED: Duration = Duration::from_millis(100);

/// Who sits where.
#[derive(Debug, Default)]
struct Seats(Mutex<HashMap<IpAddr, usize>>);

struct Seat {
    of: Arc<Seats>,
    peer: IpAddr,
}

impl Seats {
    fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Seat> {
        let mut taken = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let has_room = taken.values().sum::<usize>() < SEATS
            && taken.get(&peer).is_none_or(|&of_one| of_one < SEATS_OF_ONE);
        has_room.then(|| {
            *taken.entry(peer).or_default() += 1;
            Seat { of: Arc::clone(self), peer }
        })
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut taken = self.of.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = taken.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

pub(super) async fn open(listeners: Vec<TcpListener>, app: &Arc<App>) -> io::Result<()> {
    let (routes, seats) = (routes::all(app), Arc::new(Seats::default()));
    let mut doors = JoinSet::new();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (app, routes, seats) = (Arc::clone(app), routes.clone(), Arc::clone(&seats));
        doors.spawn(async move {
            loop {
                let Ok((stream, peer)) = listener.accept().await else {
                    sleep(REFUSED).await;
                    continue;
                };
                match seats.take(peer.ip()) {
                    Some(seat) => drop(tokio::spawn(serve(stream, seat, routes.clone()))),
                    None => app.own.refused(),
                }
            }
        });
    }
    doors.join_all().await;
    Ok(())
}

async fn serve(stream: TcpStream, seat: Seat, routes: Router) {
    let service = TowerToHyperService::new(routes);
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        .serve_connection(TokioIo::new(stream), service);
    // What went wrong with a connection is its peer's to know.
    let _ = timeout(LIFE, connection).await;
    drop(seat);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seats_are_bounded_for_one_and_for_all_and_given_back() {
        let seats = Arc::new(Seats::default());
        let peer = |n: u8| IpAddr::from([127, 0, 0, n]);
        let mut taken: Vec<_> = (0..SEATS_OF_ONE).map(|_| seats.take(peer(1)).expect("room")).collect();
        assert!(seats.take(peer(1)).is_none() && seats.take(peer(2)).is_some());
        taken.pop();
        taken.push(seats.take(peer(1)).expect("given back"));
        taken.extend((0..SEATS - SEATS_OF_ONE).filter_map(|n| seats.take(peer(2 + n as u8))));
        assert_eq!(taken.len(), SEATS);
        assert!(seats.take(peer(250)).is_none());
        drop(taken);
        assert!(seats.0.lock().expect("no panic").is_empty());
    }
}
