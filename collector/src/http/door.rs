//! Connections. Who has not said yet what it wants waits in a hall, for a short time, and gives way to who comes later; who has said it
//! has a seat until it is answered. So those that are silent, however many, keep nobody out.

use std::{
    io,
    net::{IpAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use axum::{Extension, Router};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    io::{AsyncReadExt as _, join},
    net::{TcpStream, tcp::OwnedReadHalf},
    task::JoinSet,
    time::{sleep, timeout},
};

use super::{
    app::App,
    connection_limit::{Bounds, ConnectionLimit, Place},
    routes,
};

/// Connections that are silent still. Of one address there may be as many: on one host all have one.
const HALL: Bounds = Bounds { all: 256, of_one: 256, grace: Duration::ZERO };

/// Requests that are answered at a time: Prometheus needs one, a few people and scripts some more. Of one address fewer, so that one
/// that is broken leaves room for the others. Who takes long to hear its answer gives way to who comes.
const SEATS: Bounds = Bounds { all: 128, of_one: 48, grace: Duration::from_secs(10) };

/// How long the head of a request may take from the begin of its connection.
const HEAD: Duration = Duration::from_secs(3);

/// How long a connection may last in all; Prometheus opens another.
const LIFE: Duration = Duration::from_mins(2);

/// Head of a request, in bytes and in lines.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_LINES: usize = 64;

/// Pause after the system refused a connection: mostly for want of descriptors.
const REFUSED: Duration = Duration::from_millis(100);

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// The two limits, and who is told of those that were sent away.
#[derive(Debug)]
struct House {
    hall: Arc<ConnectionLimit>,
    seats: Arc<ConnectionLimit>,
    app: Arc<App>,
}

pub(super) async fn open(listeners: Vec<TcpListener>, app: &Arc<App>) -> io::Result<()> {
    let routes = routes::all(app);
    let house =
        House { hall: ConnectionLimit::new(HALL), seats: ConnectionLimit::new(SEATS), app: Arc::clone(app) };
    let house = Arc::new(house);
    let mut doors = JoinSet::new();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (routes, house) = (routes.clone(), Arc::clone(&house));
        doors.spawn(async move {
            loop {
                let Ok((stream, peer)) = listener.accept().await else {
                    sleep(REFUSED).await;
                    continue;
                };
                // Of those that wait the oldest goes: there is always room.
                let Some(place) = house.hall.enter(peer.ip()) else { continue };
                tokio::spawn(receive(stream, place, Arc::clone(&house), routes.clone()));
            }
        });
    }
    doors.join_all().await;
    Ok(())
}

async fn receive(stream: TcpStream, waiting: Place, house: Arc<House>, routes: Router) {
    let (mut read, write) = stream.into_split();
    let head = tokio::select! {
        head = timeout(HEAD, head(&mut read)) => head,
        () = waiting.lost() => return house.app.own.refused(),
    };
    let Ok(Ok(head)) = head else { return };
    let Some(seat) = house.seats.enter(waiting.peer()) else { return house.app.own.refused() };
    drop(waiting);
    let stream = join(io::Cursor::new(head).chain(read), write);
    let service = TowerToHyperService::new(routes.layer(Extension(Peer(seat.peer()))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        // A seat is for one request: who has another comes again.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // What went wrong with a connection is its peer's to know.
        _ = timeout(LIFE, connection) => {}
        () = seat.lost() => house.app.own.refused(),
    }
}

/// What comes up to the end of a request's head, and perhaps some of its body; what is too long or cut short is for the server to refuse.
async fn head(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1 << 10);
    loop {
        let before = head.len();
        if from.read_buf(&mut head).await? == 0 && head.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The end may have come in two pieces.
        let new = &head[before.saturating_sub(3)..];
        let has_ended =
            new.windows(4).any(|end| end == b"\r\n\r\n") || new.windows(2).any(|end| end == b"\n\n");
        if has_ended || head.len() == before || head.len() >= HEAD_BYTES {
            return Ok(head);
        }
    }
}
