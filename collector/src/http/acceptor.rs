//! Accepts connections. A client that has not sent its request waits in a pending slot for a short time, and
//! later clients displace it. A client that has sent its request has an active slot until it is answered. So
//! any number of silent connections cannot block other clients.

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
    connection_limit::{Bounds, ConnectionLimit, Slot},
    routes,
};

/// Limits of silent connections. One address may have all of them, because all local clients share one
/// address.
const PENDING: Bounds = Bounds { all: 256, of_one: 256, grace: Duration::ZERO };

/// Limits of requests in progress: Prometheus needs one, and a few people and scripts some more. One address
/// gets fewer, so that a broken client leaves capacity for others. New clients displace a client that reads
/// its answer slowly.
const ACTIVE: Bounds = Bounds { all: 128, of_one: 48, grace: Duration::from_secs(10) };

/// Time limit for the head of a request, from the begin of its connection.
const HEAD: Duration = Duration::from_secs(3);

/// Time limit of a connection; Prometheus opens another.
pub(super) const LIFE: Duration = Duration::from_mins(2);

/// Longest head of a request, in bytes and in lines.
const HEAD_BYTES: usize = 16 << 10;
const HEAD_LINES: usize = 64;

/// Pause after the system refused a connection, usually because there were no more descriptors.
const REFUSED: Duration = Duration::from_millis(100);

/// A request's source address.
#[derive(Clone, Copy, Debug)]
pub(super) struct Peer(pub(super) IpAddr);

/// The two limits, and the counter of refused connections.
#[derive(Debug)]
struct Admission {
    pending: Arc<ConnectionLimit>,
    active: Arc<ConnectionLimit>,
    app: Arc<App>,
}

pub(super) async fn open(listeners: Vec<TcpListener>, app: &Arc<App>) -> io::Result<()> {
    let routes = routes::all(app);
    let admission = Admission {
        pending: ConnectionLimit::new(PENDING),
        active: ConnectionLimit::new(ACTIVE),
        app: Arc::clone(app),
    };
    let admission = Arc::new(admission);
    let mut acceptors = JoinSet::new();
    for listener in listeners {
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let (routes, admission) = (routes.clone(), Arc::clone(&admission));
        acceptors.spawn(async move {
            loop {
                let Ok((stream, peer)) = listener.accept().await else {
                    sleep(REFUSED).await;
                    continue;
                };
                // A new connection always gets a slot: it displaces the oldest pending one.
                let Some(slot) = admission.pending.enter(peer.ip()) else { continue };
                tokio::spawn(receive(stream, slot, Arc::clone(&admission), routes.clone()));
            }
        });
    }
    acceptors.join_all().await;
    Ok(())
}

async fn receive(stream: TcpStream, waiting: Slot, admission: Arc<Admission>, routes: Router) {
    let (mut read, write) = stream.into_split();
    let head = tokio::select! {
        head = timeout(HEAD, head(&mut read)) => head,
        () = waiting.lost() => return admission.app.own.refused(),
    };
    let Ok(Ok(head)) = head else { return };
    let Some(slot) = admission.active.enter(waiting.peer()) else { return admission.app.own.refused() };
    drop(waiting);
    let stream = join(io::Cursor::new(head).chain(read), write);
    let service = TowerToHyperService::new(routes.layer(Extension(Peer(slot.peer()))));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEAD_LINES)
        // An active slot is for one request. A client reconnects for another request.
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        // Connection errors concern only the peer.
        _ = timeout(LIFE, connection) => {}
        () = slot.lost() => admission.app.own.refused(),
    }
}

/// Reads everything up to the end of a request's head, and perhaps some of its body. The server refuses heads
/// that are too long or cut short.
async fn head(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let mut head = Vec::with_capacity(1 << 10);
    loop {
        let before = head.len();
        if from.read_buf(&mut head).await? == 0 && head.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // The marker of the head's end may arrive in two pieces.
        let new = &head[before.saturating_sub(3)..];
        let has_ended =
            new.windows(4).any(|end| end == b"\r\n\r\n") || new.windows(2).any(|end| end == b"\n\n");
        if has_ended || head.len() == before || head.len() >= HEAD_BYTES {
            return Ok(head);
        }
    }
}
