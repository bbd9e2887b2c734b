//! A misbehaving collector at the hook's socket: `rude_collector SOCKET MANNER`. It runs until its input ends
//! or it is killed.
//!
//! Prints a line for each message that it receives, or for each connection if it does not speak ZeroMQ.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    os::unix::{
        fs::PermissionsExt as _,
        net::{UnixListener, UnixStream},
    },
    process::exit,
    thread,
    time::{Duration, Instant},
};

use xpu_wire::{
    codec,
    frame::{Body, CaptureOrder, CaptureOutcome, CaptureWindow, Command, Frame},
    id::Step,
    unit::{Moment, Nanoseconds},
};

/// How long each connection is treated in one manner.
const EACH: Duration = Duration::from_millis(400);

/// How long one message may wait for space in the queue.
const PATIENCE_MS: i32 = 20;

/// Steps from the request of a flood's capture to its first step. By then the hook has answered.
const SOON: u64 = 50;

/// The number of messages that may wait in the queue. Some have eight megabytes.
const QUEUE: i32 = 8;

fn main() {
    let mut words = std::env::args().skip(1);
    let (Some(socket), Some(manner)) = (words.next(), words.next()) else {
        eprintln!("rude_collector SOCKET quiet|takes_over|floods|no_peer|knocks");
        exit(64);
    };
    if manner == "knocks" {
        return knock(&socket);
    }
    thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        exit(0);
    });
    match manner.as_str() {
        "no_peer" => be_no_peer(&socket),
        manner => be_a_peer(&socket, manner),
    }
}

fn say(line: &str) {
    println!("{line}");
    let _ = io::stdout().flush();
}

/// Connects to another user's socket, and prints the result.
fn knock(socket: &str) {
    let connected = UnixStream::connect(socket);
    let heard = connected.and_then(|mut stream| {
        stream.set_read_timeout(Some(EACH * 10))?;
        stream.read(&mut [0; 64])
    });
    match heard {
        Ok(bytes) => say(&format!("heard {bytes} bytes")),
        Err(error) => say(&format!("heard nothing: {error}")),
    }
}

fn open_to_all(socket: &str) {
    fs::set_permissions(socket, fs::Permissions::from_mode(0o777)).expect("a socket just made");
    say("here");
}

/// A ROUTER socket as collectors have, which accepts every user.
fn be_a_peer(path: &str, manner: &str) {
    let context = zmq::Context::new();
    let socket = context.socket(zmq::ROUTER).expect("a ZeroMQ socket");
    socket.set_linger(0).expect("an option");
    socket.set_router_mandatory(true).expect("an option");
    socket.set_sndhwm(QUEUE).expect("an option");
    socket.set_sndtimeo(PATIENCE_MS).expect("an option");
    socket.bind(&format!("ipc://{path}")).expect("nobody else is there");
    open_to_all(path);
    let mut who = None;
    // A flood begins with a capture. A request for it within the flood would wait for seconds and come too
    // late.
    let (mut number, mut completed, mut is_agreed) = (0_u64, 0, manner != "floods");
    loop {
        let waits = if who.is_some() && manner != "quiet" && is_agreed { 0 } else { 20 };
        if socket.poll(zmq::POLLIN, waits) == Ok(1)
            && let Ok(parts) = socket.recv_multipart(zmq::DONTWAIT)
        {
            let text = String::from_utf8_lossy(&parts[parts.len() - 1]).into_owned();
            let text: String = text.chars().filter(|c| !c.is_control()).take(300).collect();
            say(&format!("message: {text}"));
            if let Some(Ok(Frame { body: Body::CaptureAnswer(answer), .. })) =
                parts.last().map(|part| codec::decode(part))
            {
                completed = answer.completed.0;
                if answer.outcome == CaptureOutcome::Agreed && !is_agreed {
                    say("agreed to a capture");
                    is_agreed = true;
                }
            }
            who = parts.into_iter().next();
        }
        let Some(who) = who.as_ref().filter(|_| manner != "quiet") else { continue };
        let message = match manner {
            "floods" if is_agreed => flood(number),
            "floods" => frame(number, Command::Capture(order(number, completed + SOON))),
            _ => harm(number),
        };
        // A hook that disconnects sends again after it has reconnected.
        let _ = socket.send_multipart([&who[..], &message], 0);
        number += 1;
    }
}

/// Messages by which a collector could harm a rank: they switch the hook off, begin a capture, or are
/// megabytes long.
fn harm(number: u64) -> Vec<u8> {
    let command = match number % 4 {
        0 => Command::Enable(false),
        1 => Command::Capture(order(number, u64::MAX / 2)),
        2 => Command::Introduce,
        _ => return vec![b'x'; codec::LARGEST_FRAME],
    };
    frame(number, command)
}

/// Messages, small and large, that a faulty collector may send by the thousand.
fn flood(number: u64) -> Vec<u8> {
    match number % 16 {
        0 => harm(number / 16),
        1 => frame(number, Command::Enable(true)),
        3 => frame(number, Command::EndCapture(number)),
        5 => frame(number, Command::Capture(order(number, u64::MAX))),
        6 => {
            let (at, length) = (Moment::now().after(Duration::from_secs(5)), CaptureWindow::LONGEST.into());
            let order = CaptureOrder { steps: 0, ..order(number, 0) };
            frame(number, Command::CaptureTime(order, CaptureWindow { at, length }))
        }
        7 => vec![b'x'; 60 << 10],
        9 => frame(number, Command::EndCapture(u64::MAX)),
        // More than a hook accepts, so the hook disconnects.
        11 if number % 128 == 11 => vec![0; 70 << 10],
        13 => Vec::new(),
        _ => frame(number, Command::Introduce),
    }
}

fn order(number: u64, first: u64) -> CaptureOrder {
    CaptureOrder {
        number,
        first: Step(first),
        steps: CaptureOrder::STEPS,
        limit: Nanoseconds(u64::MAX),
        before: u32::MAX,
        activity: true,
        functions: true,
    }
}

fn frame(number: u64, command: Command) -> Vec<u8> {
    let (host, now) = ("rude".into(), Moment::now());
    codec::encode(&Frame { host, number, now, lost: 0, body: Body::Command(command) })
}

/// A server that does not speak ZeroMQ, or stops after its greeting. It handles each connection differently.
fn be_no_peer(path: &str) {
    let listener = UnixListener::bind(path).expect("nobody else is there");
    open_to_all(path);
    for (number, stream) in listener.incoming().flatten().enumerate() {
        say(&format!("connection {number}"));
        thread::spawn(move || {
            let _ = stream.set_write_timeout(Some(EACH));
            mistreat(stream, number)
        });
    }
}

fn mistreat(mut stream: UnixStream, number: usize) -> io::Result<()> {
    let until = Instant::now() + EACH;
    let block = |of: &[u8]| of.repeat((64 << 10) / of.len());
    let (greets, begin, again) = match number % 8 {
        // Endless frames: empty ones, parts of a message that never ends, heartbeats, subscriptions.
        0 => (true, vec![], block(b"\0\0")),
        1 => (true, vec![], block(b"\x01\0")),
        2 => (true, vec![], block(b"\x04\x0b\x04PING\0\x0aabcd")),
        3 => (true, vec![], block(b"\x04\x0b\x09SUBSCRIBEx")),
        // The header of a frame of four exabytes, and its first bytes.
        4 => (true, b"\x02\x3f\xff\xff\xff\xff\xff\xff\xff".to_vec(), block(b"x")),
        // A greeting of another protocol, an invalid one, or none.
        5 => (false, vec![], block(b"HTTP/1.1 200 OK\r\n")),
        6 => (false, vec![], block(b"\xff")),
        _ => (false, vec![], vec![]),
    };
    if greets {
        stream.write_all(&greeting())?;
    }
    stream.write_all(&begin)?;
    while Instant::now() < until {
        if again.is_empty() {
            thread::sleep(EACH);
        }
        stream.write_all(&again)?;
    }
    Ok(())
}

/// A ZMTP 3.1 greeting with the NULL mechanism, and a READY command that names a ROUTER (RFC 37).
fn greeting() -> Vec<u8> {
    let mut bytes = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
    bytes.resize(64, 0);
    bytes.extend(b"\x04\x1c\x05READY\x0bSocket-Type\0\0\0\x06ROUTER");
    bytes
}
