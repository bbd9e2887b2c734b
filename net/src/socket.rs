//! The ZeroMQ sockets of xpu-top, configured in one place: bounded queues, no lingering, heartbeats, and
//! CURVE if there is a key.

use std::ffi::c_int;

use xpu_wire::{codec, endpoint::user_id};
use zmq::{Context, Socket, SocketType};

use crate::key::Key;

/// Number of messages that a worker queues for its collector, and a collector for each of its workers, before
/// messages are dropped: a minute at the usual rate. Captured data waits in the worker instead.
const WORKER_QUEUE: i32 = 64;

/// Messages queued for a slow viewer before further messages are dropped. A drop shows as a gap in frame
/// numbers.
const PUBLISH_QUEUE: i32 = 10_000;

/// Requests and replies queued for one peer.
const CONTROL_QUEUE: i32 = 1_000;

/// Interval of heartbeats. A peer that is silent for three intervals counts as gone, and is reconnected.
const HEARTBEAT_MS: i32 = 2_000;

/// A peer that has not completed its handshake after this time is disconnected, so that silent connections do
/// not accumulate.
const HANDSHAKE_MS: i32 = 5_000;

/// Longest wait between two attempts to connect.
const RECONNECT_MAX_MS: i32 = 5_000;

fn make(context: &Context, kind: SocketType, queue: i32) -> zmq::Result<Socket> {
    let socket = context.socket(kind)?;
    socket.set_linger(0)?;
    socket.set_sndhwm(queue)?;
    socket.set_rcvhwm(queue)?;
    socket.set_maxmsgsize(i64::try_from(codec::LARGEST_FRAME).unwrap_or(i64::MAX))?;
    socket.set_reconnect_ivl(100)?;
    socket.set_reconnect_ivl_max(RECONNECT_MAX_MS)?;
    Ok(socket)
}

fn over_tcp(context: &Context, kind: SocketType, queue: i32) -> zmq::Result<Socket> {
    let socket = make(context, kind, queue)?;
    socket.set_heartbeat_ivl(HEARTBEAT_MS)?;
    socket.set_heartbeat_timeout(HEARTBEAT_MS * 3)?;
    socket.set_heartbeat_ttl(HEARTBEAT_MS * 3)?;
    socket.set_handshake_ivl(HANDSHAKE_MS)?;
    Ok(socket)
}

fn serve_with(socket: &Socket, key: Option<&Key>) -> zmq::Result<()> {
    let Some(key) = key else { return Ok(()) };
    socket.set_curve_server(true)?;
    socket.set_curve_secretkey(&key.secret)
}

fn connect_with(socket: &Socket, key: Option<&Key>) -> zmq::Result<()> {
    let Some(key) = key else { return Ok(()) };
    socket.set_curve_serverkey(&key.public)?;
    socket.set_curve_publickey(&key.public)?;
    socket.set_curve_secretkey(&key.secret)
}

/// A worker's end of the ipc socket. The caller connects it.
pub fn worker(context: &Context) -> zmq::Result<Socket> {
    make(context, zmq::DEALER, WORKER_QUEUE)
}

/// The collector's end of the ipc socket, which accepts only connections of this user and of root, whatever
/// the mode of the socket and its directory. The caller binds it.
pub fn workers(context: &Context) -> zmq::Result<Socket> {
    let mut socket = make(context, zmq::ROUTER, WORKER_QUEUE)?;
    socket.set_router_handover(true)?;
    for user in [user_id(), 0] {
        admit(&mut socket, user)?;
    }
    Ok(socket)
}

/// Lets processes of this user connect to a Unix socket. After the first call, only users named by such a
/// call can connect (`ZMQ_IPC_FILTER_UID`, which the zmq crate leaves out).
fn admit(socket: &mut Socket, user: u32) -> zmq::Result<()> {
    const IPC_FILTER_UID: c_int = 59;
    // SAFETY: the socket lives through the call, which reads four bytes of `user` (zmq_setsockopt(3), uid_t).
    let rc = unsafe {
        zmq_sys::zmq_setsockopt(
            socket.as_mut_ptr(),
            IPC_FILTER_UID,
            (&raw const user).cast(),
            size_of::<u32>(),
        )
    };
    // SAFETY: zmq_errno has no precondition.
    if rc == 0 { Ok(()) } else { Err(zmq::Error::from_raw(unsafe { zmq_sys::zmq_errno() })) }
}

/// The collector's data socket: an XPUB, which shows the subscriptions, so that the collector publishes only
/// topics with subscribers. The caller binds it.
pub fn publisher(context: &Context, key: Option<&Key>) -> zmq::Result<Socket> {
    let socket = over_tcp(context, zmq::XPUB, PUBLISH_QUEUE)?;
    serve_with(&socket, key)?;
    Ok(socket)
}

/// A viewer's data socket. The caller connects it to every host and subscribes.
pub fn subscriber(context: &Context, key: Option<&Key>) -> zmq::Result<Socket> {
    let socket = over_tcp(context, zmq::SUB, PUBLISH_QUEUE)?;
    connect_with(&socket, key)?;
    Ok(socket)
}

/// A relay's data socket to the hosts behind it: an XSUB, which takes subscriptions as messages. The caller connects it.
pub fn relayed(context: &Context, key: Option<&Key>) -> zmq::Result<Socket> {
    let socket = over_tcp(context, zmq::XSUB, PUBLISH_QUEUE)?;
    connect_with(&socket, key)?;
    Ok(socket)
}

/// The collector's control socket. The caller binds it.
pub fn control_server(context: &Context, key: Option<&Key>) -> zmq::Result<Socket> {
    let socket = over_tcp(context, zmq::ROUTER, CONTROL_QUEUE)?;
    serve_with(&socket, key)?;
    Ok(socket)
}

/// A viewer's control socket to one host. The caller connects it.
pub fn control_client(context: &Context, key: Option<&Key>) -> zmq::Result<Socket> {
    let socket = over_tcp(context, zmq::DEALER, CONTROL_QUEUE)?;
    connect_with(&socket, key)?;
    Ok(socket)
}

/// Raises this process's descriptor limit to `needed`, or as far as allowed. The usual soft limit is 1024.
pub fn raise_descriptor_limit(needed: usize) {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let needed = needed as libc::rlim_t;
    // SAFETY: the pointer is to a live rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 && limit.rlim_cur < needed {
        limit.rlim_cur = needed.min(limit.rlim_max);
        // SAFETY: the pointer is to a live rlimit; a refusal leaves the old limit.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}
