//! Tests of unauthorised clients: without the key, with another key, with garbage, with too much data, or as
//! another user.

// A helper that cannot go on panics, as a test does.
#![allow(clippy::unwrap_used)]

mod lab;
#[path = "../../tests/lab/skip.rs"]
#[allow(dead_code, unreachable_pub, reason = "the other tests' own; what is skipped here could be had in CI")]
mod skip;

use std::{
    fs,
    io::{ErrorKind, Read as _, Write as _},
    net::TcpStream,
    os::unix::{fs::PermissionsExt as _, net::UnixStream, process::CommandExt as _},
    process::Command,
    thread,
    time::Duration,
};

use lab::{Lab, Viewer, Worker, until};
use xpu_net::key::Key;
use xpu_wire::{
    codec,
    endpoint::user_id,
    frame::{Body, Request},
    id::{Pid, Rank},
};
use zmq::DONTWAIT;

/// A user id without an account.
const NOBODY: u32 = 65_534;

/// Checks that the worker still runs, and that a viewer with the key sees it.
fn all_is_well(worker: &mut Worker, viewer: &Viewer) {
    let before = viewer.sees().first().and_then(|seen| seen.3);
    until("a step more", || {
        worker.step();
        (viewer.sees().first()?.3 > before).then_some(())
    });
    assert_eq!(worker.received(), None, "nobody told it anything");
}

#[test]
fn a_stranger_without_the_key_receives_nothing() {
    let key = Key::generate().unwrap();
    let lab = Lab::started(Some(key.clone()));
    let mut worker = lab.worker("a", 0);
    worker.hello();
    worker.step();
    let (friend, other) = (lab.viewer(Some(&key)), Key::generate().unwrap());
    let strangers = [lab.viewer(None), lab.viewer(Some(&other))];
    for viewer in strangers.iter().chain([&friend]) {
        viewer.data.set_subscribe(b"").unwrap();
        viewer.ask(Request::Snapshot);
    }
    let mut digests = 0;
    until("five digests for who has the key", || {
        worker.step();
        digests += usize::from(friend.published().is_some());
        (digests >= 5).then_some(())
    });
    for stranger in strangers {
        assert!(stranger.published().is_none());
        assert!(stranger.control.recv_multipart(DONTWAIT).is_err());
    }
}

#[test]
fn thousands_of_silent_or_garbage_connections_affect_no_client() {
    let key = Key::generate().unwrap();
    let lab = Lab::started(Some(key.clone()));
    let mut worker = lab.worker("a", 0);
    worker.hello();
    worker.step();
    let viewer = lab.viewer(Some(&key));
    until("the rank", || (viewer.sees().len() == 1).then_some(()));
    let garbage: [&[u8]; 5] = [
        b"",
        b"GET /metrics HTTP/1.1\r\n\r\n",
        // A ZMTP 3.0 greeting that promises CURVE, and one that promises no security.
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
        // A frame with a length of an exabyte.
        b"\xff\0\0\0\0\0\0\0\x01\x7f\x01\x02\x0f\xff\xff\xff\xff\xff\xff\xff",
    ];
    let mut held = Vec::new();
    for number in 0..2_000 {
        for address in [lab.data(), lab.control()] {
            let mut stream = TcpStream::connect(address).unwrap();
            let _ = stream.write_all(garbage[number % garbage.len()]);
            held.push(stream);
        }
    }
    all_is_well(&mut worker, &viewer);
    // A viewer that connects afterwards is served, too.
    let late = lab.viewer(Some(&key));
    until("an answer to who came late", || (late.sees().len() == 1).then_some(()));
    // Each held message is released separately.
    let mut first = held.swap_remove(0);
    first.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut greeting = Vec::new();
    let ended = first.read_to_end(&mut greeting);
    assert!(ended.is_ok() || ended.is_err_and(|error| error.kind() == ErrorKind::ConnectionReset));
    assert!(greeting.len() <= 64, "a greeting at most: {greeting:?}");
}

/// 64 MiB exceed any frame: the connection ends, and nothing of the message stays in memory.
#[test]
fn a_message_beyond_all_bounds_ends_its_connection_alone() {
    let lab = Lab::started(None);
    let mut worker = lab.worker("a", 0);
    worker.hello();
    worker.step();
    let (viewer, greedy) = (lab.viewer(None), lab.viewer(None));
    until("the rank", || (viewer.sees().len() == 1).then_some(()));
    greedy.control.send(vec![b'x'; 64 << 20], DONTWAIT).unwrap();
    all_is_well(&mut worker, &viewer);
    let mut rude = lab.worker("b", 0);
    rude.socket.send(vec![b'x'; 64 << 20], DONTWAIT).unwrap();
    all_is_well(&mut worker, &viewer);
    rude.hello();
    all_is_well(&mut worker, &viewer);
}

/// Sends answers whose route has many relays, or invalid ones.
#[test]
fn endless_routes_do_no_harm() {
    let lab = Lab::started(None);
    let mut worker = lab.worker("a", 0);
    worker.hello();
    let (viewer, other) = (lab.viewer(None), lab.viewer(None));
    let request = codec::encode(&xpu_wire::frame::Frame {
        host: "x".into(),
        number: 0,
        now: xpu_wire::unit::Moment(0),
        lost: 0,
        body: Body::Request(Request::Snapshot),
    });
    for parts in [1_usize, 2, 9, 500] {
        let mut message = vec![vec![b'r'; 200]; parts];
        message.push(request.clone());
        other.control.send_multipart(&message, DONTWAIT).unwrap();
    }
    other.control.send_multipart([vec![b'r'; 4 << 20], request.clone()], DONTWAIT).unwrap();
    let mut shapes = Vec::new();
    until("five answers", || {
        shapes.push(other.control.recv_multipart(DONTWAIT).ok()?.len());
        (shapes.len() == 5).then_some(())
    });
    assert_eq!(shapes, [2, 3, 9, 9, 1], "as many parts as came, up to eight");
    all_is_well(&mut worker, &viewer);
}

/// Whether these tests can run. Prints a line if not.
fn is_root() -> bool {
    let root = user_id() == 0;
    if !root {
        skip::skipped("only root can act as another user");
    }
    root
}

#[test]
fn another_user_cannot_speak_for_a_rank_even_where_modes_would_allow_it() {
    if !is_root() {
        return;
    }
    let lab = Lab::started(None);
    let path = lab.socket_path();
    until("the socket", || path.exists().then_some(()));
    fs::set_permissions(lab.config.runtime.path(), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    let greeted_as = |user: Option<u32>| {
        let path = path.clone();
        thread::spawn(move || {
            if let Some(user) = user {
                // SAFETY: the system call changes the users of this thread alone, which ends below.
                assert_eq!(unsafe { libc::syscall(libc::SYS_setresuid, user, user, user) }, 0);
            }
            let mut stream = UnixStream::connect(&path).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            let mut byte = [0];
            stream.read(&mut byte).unwrap_or(0) == 1
        })
        .join()
        .unwrap()
    };
    assert!(greeted_as(None), "who it is for is greeted");
    assert!(!greeted_as(Some(NOBODY)), "another user is not");
}

#[test]
fn the_process_of_another_user_is_not_read() {
    if !is_root() {
        return;
    }
    let lab = Lab::started(None);
    let mut theirs = Command::new("sleep").arg("600").uid(NOBODY).spawn().unwrap();
    let mut worker = lab.worker("a", 0);
    worker.info.pid = Pid(theirs.id());
    worker.hello();
    let viewer = lab.viewer(None);
    until("the rank", || (viewer.sees().len() == 1).then_some(()));
    viewer.ask(Request::Stacks { job: "a".into(), ranks: vec![Rank(0)], kept: false, natively: true });
    let stacks = until("an answer", || {
        let parts = viewer.control.recv_multipart(DONTWAIT).ok()?;
        match codec::decode(parts.last()?).unwrap().body {
            Body::Stacks(stacks) => Some(stacks),
            _ => None,
        }
    });
    theirs.kill().unwrap();
    theirs.wait().unwrap();
    assert!(stacks.threads.is_empty() && stacks.why[0].contains("belongs to another user"), "{stacks:?}");
}
