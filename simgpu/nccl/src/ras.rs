//! NCCL's RAS, with its counts of collectives only: a thread that answers `STATUS` in JSON, if
//! `NCCL_RAS_ADDR` is set. As in NCCL, it answers while the program waits, and the processes of a host share
//! the port. A communicator's counts are in the memory that its ranks share, so each process answers for all
//! ranks of its communicators. Unlike NCCL's RAS, it omits communicators that only other processes have,
//! reports no missing rank, and counts collectives in CUDA graphs.

use std::ffi::c_int;
use std::fmt::Write as _;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::mem;
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};

use simgpu_engine::worker;

use crate::about;
use crate::action::{Action, Kind};
use crate::communicator::Communicator;

/// The operations that RAS counts, in RAS's order.
const COUNTED: [Kind; 5] =
    [Kind::Broadcast, Kind::Reduce, Kind::AllGather, Kind::ReduceScatter, Kind::AllReduce];

/// The first version with JSON.
const JSON: c_int = 22_807;

/// The number of a rank's collectives so far, by kind.
pub(crate) type Launched = [AtomicU64; COUNTED.len()];

static KNOWN: Mutex<Vec<Weak<Communicator>>> = Mutex::new(Vec::new());

/// Registers a communicator. The first one starts the thread.
pub(crate) fn begin(communicator: &Arc<Communicator>) {
    static STARTED: Once = Once::new();
    let Some(address) = std::env::var("NCCL_RAS_ADDR").ok().and_then(|set| set.parse().ok()) else { return };
    communicator.rendezvous.rank_slot(communicator.rank).pid.store(std::process::id(), Ordering::Relaxed);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|one| one.strong_count() > 0);
    known.push(Arc::downgrade(communicator));
    STARTED.call_once(|| {
        // As in NCCL, there is no RAS if its port is not free.
        if let Ok(listener) = listen(address) {
            let _ = worker::spawn("simgpu-ras", move || listener.incoming().flatten().for_each(serve));
        }
    });
}

/// Counts the collectives that a launch starts.
pub(crate) fn count(communicator: &Communicator, actions: &[Action]) {
    let launched = &communicator.rendezvous.rank_slot(communicator.rank).launched;
    for action in actions {
        let Action::Collective { kind, .. } = action else { continue };
        if let Some(at) = COUNTED.iter().position(|counted| counted == kind) {
            launched[at].fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// All processes of a host listen on the same port.
fn listen(address: SocketAddrV4) -> io::Result<TcpListener> {
    // SAFETY: takes plain numbers.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and belongs to no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let fd = socket.as_raw_fd();
    let on: c_int = 1;
    let length = |bytes: usize| libc::socklen_t::try_from(bytes).unwrap_or(0);
    for option in [libc::SO_REUSEADDR, libc::SO_REUSEPORT] {
        // SAFETY: reads one number, which outlives the call.
        unsafe {
            libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const on).cast(), length(size_of::<c_int>()))
        };
    }
    // SAFETY: an address is plain data, for which zeros are valid.
    let mut name: libc::sockaddr_in = unsafe { mem::zeroed() };
    name.sin_family = libc::AF_INET as libc::sa_family_t;
    name.sin_port = address.port().to_be();
    name.sin_addr.s_addr = u32::from_ne_bytes(address.ip().octets());
    // SAFETY: reads one address, which outlives the call.
    let bound = unsafe {
        libc::bind(fd, (&raw const name).cast(), length(size_of::<libc::sockaddr_in>())) == 0
            && libc::listen(fd, 128) == 0
    };
    if bound { Ok(TcpListener::from(socket)) } else { Err(io::Error::last_os_error()) }
}

fn serve(stream: TcpStream) {
    let Ok(mut to) = stream.try_clone() else { return };
    let mut is_json = false;
    for line in BufReader::new(stream).lines() {
        let Ok(line) = line else { return };
        let line = line.trim_end().to_ascii_lowercase();
        let said = if line.starts_with("client protocol ") {
            "SERVER PROTOCOL 2\n".to_owned()
        } else if line == "set format json" && about::version() >= JSON {
            is_json = true;
            "OK\n".to_owned()
        } else if matches!(line.as_str(), "status" | "verbose status") && is_json {
            // The connection is closed at the end of the document.
            let _ = to.write_all(document().as_bytes());
            return;
        } else {
            format!("ERROR: Unknown command {line}\n")
        };
        if to.write_all(said.as_bytes()).is_err() {
            return;
        }
    }
}

fn document() -> String {
    let known: Vec<_> = {
        let known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
        known.iter().filter_map(Weak::upgrade).collect()
    };
    let version = about::version();
    let communicators: Vec<_> = known.iter().map(|one| communicator(one)).collect();
    format!(
        "{{\n  \"nccl_version\": \"{}.{}.{}\",\n  \"communicators_count\": {},\n  \"communicators\": [\n{}\n  ],\n  \"ras\": {{\n    \"collection_time_sec\": 0.001,\n    \"timeouts_count\": 0\n  }}\n}}\n",
        version / 10_000,
        version / 100 % 100,
        version % 100,
        known.len(),
        communicators.join(",\n")
    )
}

fn communicator(one: &Communicator) -> String {
    let ranks: Vec<_> = (0..one.ranks()).map(|rank| member(one, rank)).collect();
    format!(
        "    {{\n      \"hash\": \"{:#x}\",\n      \"secondary_hash\": \"0x0:0x0\",\n      \"size\": {size},\n      \"ranks_count\": {size},\n      \"missing_ranks_count\": 0,\n      \"ranks\": [\n{}\n      ],\n      \"missing_ranks\": [\n      ]\n    }}",
        one.greeting.hash,
        ranks.join(",\n"),
        size = one.ranks()
    )
}

fn member(one: &Communicator, rank: u32) -> String {
    let slot = one.rendezvous.rank_slot(rank);
    let mut counts = String::new();
    for (kind, launched) in COUNTED.iter().zip(&slot.launched) {
        let end = if *kind == Kind::AllReduce { "" } else { "," };
        let (name, launched) = (kind.name().to_string_lossy(), launched.load(Ordering::Relaxed));
        let _ = writeln!(counts, "            \"{name}\": {launched}{end}");
    }
    let aborted = rank == one.rank && one.is_aborted();
    format!(
        "        {{\n          \"rank\": {rank},\n          \"host\": \"127.0.0.1\",\n          \"pid\": {},\n          \"status\": {{\n            \"init_state\": 0,\n            \"async_error\": 0,\n            \"finalize_called\": false,\n            \"destroy_flag\": false,\n            \"abort_flag\": {aborted}\n          }},\n          \"collective_counts\": {{\n{counts}          }}\n        }}",
        slot.pid.load(Ordering::Relaxed)
    )
}
