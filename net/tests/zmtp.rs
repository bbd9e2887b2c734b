//! Tests [`xpu_wire::zmtp`] against libzmq over Unix sockets: libzmq binds and the dealer connects, and vice
//! versa.

use std::{
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use xpu_net::socket;
use xpu_wire::zmtp::{Dealer, Error};
use zmq::{Context, DONTWAIT, Socket, SocketType};

const DEADLINE: Duration = Duration::from_secs(30);
const MEBIBYTE: usize = 1 << 20;
const MANY: usize = 1_000;

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(begun.elapsed() < DEADLINE, "waited {DEADLINE:?} for {what}");
    }
}

/// A dealer and its socket.
struct Line {
    stream: UnixStream,
    dealer: Dealer,
}

#[derive(Debug, PartialEq)]
enum End {
    Closed,
    Broken(Error),
}

impl Line {
    fn connect(path: &Path) -> Self {
        Self::over(until("a socket to connect to", || UnixStream::connect(path).ok()))
    }

    fn over(stream: UnixStream) -> Self {
        for set in [UnixStream::set_read_timeout, UnixStream::set_write_timeout] {
            set(&stream, Some(Duration::from_millis(1))).expect("a timeout");
        }
        Self { stream, dealer: Dealer::new(MEBIBYTE) }
    }

    /// Writes and reads as much as the socket allows.
    fn turn(&mut self) -> Result<(), End> {
        if !self.dealer.unsent().is_empty() {
            match self.stream.write(self.dealer.unsent()) {
                Ok(count) => self.dealer.written(count),
                Err(error) => moved(&error)?,
            }
        }
        self.listen()
    }

    /// Runs a turn if nothing has arrived yet.
    fn otherwise<T>(&mut self) -> Option<T> {
        self.turn().expect("a peer");
        None
    }

    fn listen(&mut self) -> Result<(), End> {
        let mut bytes = [0; 5_000];
        match self.stream.read(&mut bytes) {
            Ok(0) => Err(End::Closed),
            Ok(count) => self.dealer.receive(&bytes[..count]).map_err(End::Broken),
            Err(error) => moved(&error),
        }
    }

    fn ready(mut self) -> Self {
        until("the handshake", || {
            self.turn().expect("a peer");
            (self.dealer.is_ready() && self.dealer.unsent().is_empty()).then_some(())
        });
        self
    }

    fn receive(&mut self) -> Vec<u8> {
        until("a message", || self.dealer.message().or_else(|| self.otherwise()))
    }

    fn end(mut self) -> End {
        until("the end", || self.turn().err())
    }
}

/// Treats errors of a working connection as success: the socket's buffer was full, or empty.
fn moved(error: &io::Error) -> Result<(), End> {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted => Ok(()),
        _ => Err(End::Closed),
    }
}

/// A path for one socket.
struct Place {
    _folder: TempDir,
    path: PathBuf,
    context: Context,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("line");
        Self { _folder: folder, path, context: Context::new() }
    }

    fn endpoint(&self) -> String {
        format!("ipc://{}", self.path.display())
    }

    /// The collector's socket, which reports a full peer queue.
    fn workers(&self) -> Socket {
        let router = socket::workers(&self.context).expect("a socket");
        router.set_router_mandatory(true).expect("an option");
        until("the path to be free", || router.bind(&self.endpoint()).ok());
        router
    }

    fn of(&self, kind: SocketType) -> Socket {
        let socket = self.context.socket(kind).expect("a socket");
        socket.set_linger(0).expect("an option");
        if kind == zmq::ROUTER {
            // An undeliverable message is reported instead of dropped.
            socket.set_router_mandatory(true).expect("an option");
        }
        socket
    }
}

/// The next message at libzmq's end, while the dealer's end makes progress.
fn taken(socket: &Socket, line: &mut Line) -> Vec<Vec<u8>> {
    until("a message at libzmq's end", || socket.recv_multipart(DONTWAIT).ok().or_else(|| line.otherwise()))
}

/// Sends as soon as the peer's queue has room.
fn give(socket: &Socket, message: &[Vec<u8>], line: &mut Line) {
    until("room at libzmq's end", || {
        socket.send_multipart(message, DONTWAIT).ok().or_else(|| line.otherwise())
    });
}

/// Sends messages of all lengths, then very many at once, in both directions. At libzmq's end, each message
/// has a first part (`address`), or none.
fn exchange_messages(socket: &Socket, line: &mut Line) {
    for length in [0, 1, 255, 256, 65_536, MEBIBYTE] {
        let body: Vec<u8> = (0..length).map(|place| (place % 251) as u8).collect();
        line.dealer.send(&body);
        let message = taken(socket, line);
        assert_eq!(message.last(), Some(&body), "{length} bytes");
        give(socket, &message, line);
        assert!(line.receive() == body, "{length} bytes");
    }
    for number in 0..MANY {
        line.dealer.send(number.to_string().as_bytes());
    }
    let there: Vec<Vec<Vec<u8>>> = (0..MANY).map(|_| taken(socket, line)).collect();
    let mut back = Vec::new();
    for message in &there {
        give(socket, message, line);
        back.extend(std::iter::from_fn(|| line.dealer.message()));
    }
    while back.len() < MANY {
        back.push(line.receive());
    }
    for (number, (there, back)) in there.iter().zip(&back).enumerate() {
        assert_eq!(there.last(), Some(&number.to_string().into_bytes()));
        assert_eq!(back, &number.to_string().into_bytes());
    }
    assert_eq!(line.dealer.dropped(), 0);
}

#[test]
fn a_binding_collector_is_connected_to() {
    let place = Place::new();
    let router = place.workers();
    let mut line = Line::connect(&place.path).ready();
    exchange_messages(&router, &mut line);
}

#[test]
fn connecting_peers_are_accepted() {
    for kind in [zmq::DEALER, zmq::ROUTER] {
        let place = Place::new();
        let listener = UnixListener::bind(&place.path).expect("a path");
        let peer = place.of(kind);
        peer.connect(&place.endpoint()).expect("a listener");
        let mut line = Line::over(listener.accept().expect("a peer").0).ready();
        exchange_messages(&peer, &mut line);
    }
}

#[test]
fn several_connections_of_one_collector_are_distinguished() {
    let place = Place::new();
    let router = place.workers();
    let mut lines: Vec<Line> = (0..3).map(|_| Line::connect(&place.path).ready()).collect();
    let mut messages = Vec::new();
    for (number, line) in lines.iter_mut().enumerate() {
        line.dealer.send(&[number as u8]);
        messages.push(taken(&router, line));
    }
    for (message, line) in messages.iter().zip(&mut lines).rev() {
        give(&router, message, line);
        assert_eq!(line.receive(), message[1]);
    }
}

#[test]
fn a_message_of_several_parts_is_dropped_and_the_next_is_not() {
    let place = Place::new();
    let listener = UnixListener::bind(&place.path).expect("a path");
    let peer = place.of(zmq::DEALER);
    peer.connect(&place.endpoint()).expect("a listener");
    let mut line = Line::over(listener.accept().expect("a peer").0).ready();
    give(&peer, &[b"in".to_vec(), b"parts".to_vec()], &mut line);
    give(&peer, &[b"whole".to_vec()], &mut line);
    assert_eq!((line.receive(), line.dealer.dropped()), (b"whole".to_vec(), 1));
}

/// A collector with frequent heartbeats.
fn asks_often(place: &Place) -> Socket {
    let router = socket::workers(&place.context).expect("a socket");
    router.set_heartbeat_ivl(10).expect("an option");
    router.set_heartbeat_timeout(4_000).expect("an option");
    router.bind(&place.endpoint()).expect("a path");
    router
}

#[test]
fn heartbeats_are_answered() {
    let place = Place::new();
    let router = asks_often(&place);
    let mut line = Line::connect(&place.path).ready();
    let begun = Instant::now();
    let mut answers = 0;
    // Longer than the collector's heartbeat timeout.
    until("answers", || {
        answers += usize::from(!line.dealer.unsent().is_empty());
        line.turn().expect("a peer");
        (answers >= 20 && begun.elapsed() > Duration::from_millis(4_500)).then_some(())
    });
    line.dealer.send(b"still here");
    assert_eq!(taken(&router, &mut line)[1], b"still here");
}

#[test]
fn unanswered_heartbeats_end_the_connection() {
    let place = Place::new();
    let _router = asks_often(&place);
    let mut line = Line::connect(&place.path).ready();
    assert_eq!(until("the end", || line.listen().err()), End::Closed);
}

#[test]
fn a_collector_that_comes_back_is_connected_to_again() {
    let place = Place::new();
    for number in 0..3_u8 {
        let router = place.workers();
        let mut line = Line::connect(&place.path).ready();
        line.dealer.send(&[number]);
        assert_eq!(taken(&router, &mut line)[1], [number]);
        drop(router);
        assert_eq!(line.end(), End::Closed);
    }
}

#[test]
fn a_broken_connection_is_replaced_by_a_new_one() {
    let place = Place::new();
    let router = place.workers();
    let mut line = Line::connect(&place.path).ready();
    line.dealer.send(&vec![7; MEBIBYTE]);
    line.stream.write_all(&line.dealer.unsent()[..1_000]).expect("a peer");
    drop(line);
    let mut line = Line::connect(&place.path).ready();
    line.dealer.send(b"whole");
    assert_eq!(taken(&router, &mut line)[1], b"whole");
}

#[test]
fn unsuitable_peers_are_refused_by_name() {
    let place = Place::new();
    let publisher = place.of(zmq::PUB);
    publisher.bind(&place.endpoint()).expect("a path");
    assert_eq!(Line::connect(&place.path).end(), End::Broken(Error::SocketType("PUB".to_owned())));

    let place = Place::new();
    let encrypted = place.of(zmq::ROUTER);
    encrypted.set_curve_server(true).expect("an option");
    encrypted.set_curve_secretkey(&zmq::CurveKeyPair::new().expect("a key").secret_key).expect("a key");
    encrypted.bind(&place.endpoint()).expect("a path");
    // libzmq closes as soon as it has read the other greeting, often before it sends its own.
    let end = Line::connect(&place.path).end();
    assert!([End::Closed, End::Broken(Error::Mechanism("CURVE".to_owned()))].contains(&end), "{end:?}");
}

#[test]
fn a_refusing_peer_gives_a_reason() {
    let place = Place::new();
    let judge = place.of(zmq::REP);
    judge.bind("inproc://zeromq.zap.01").expect("an address");
    let judging = thread::spawn(move || {
        let request = judge.recv_multipart(0).expect("a request");
        let verdict: [&[u8]; 6] = [b"1.0", &request[1], b"400", b"not you", b"", b""];
        judge.send_multipart(verdict, 0).expect("an asker");
    });
    let router = place.of(zmq::ROUTER);
    router.set_zap_domain("here").expect("an option");
    router.bind(&place.endpoint()).expect("a path");
    assert_eq!(Line::connect(&place.path).end(), End::Broken(Error::Refused("400".to_owned())));
    judging.join().expect("a verdict");
}
