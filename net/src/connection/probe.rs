//! Finds whether a host can be reached, and if not, why. Uses plain sockets, because their errors give the
//! cause, and ZeroMQ reports none.
//!
//! Separate threads probe, because a name lookup can take the resolver half a minute. ZeroMQ gets only
//! addresses that just accepted a connection, so its threads never look up a name.

use std::{
    io,
    net::{SocketAddr, TcpStream, ToSocketAddrs as _},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use xpu_wire::endpoint::Endpoint;

use super::{route::Route, tunnel::Tunnels};

/// Longest wait for one address to accept a connection.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of addresses tried per name.
const ADDRESSES: usize = 4;

/// Concurrent lookups.
const THREADS: usize = 16;

pub type Found = Result<Route, String>;

/// Threads that probe. They end when this is dropped.
#[derive(Debug)]
pub struct Prober {
    /// follower --(connection, Endpoint)--> probers
    questions: mpsc::Sender<(usize, Endpoint)>,
    /// probers --(connection, Found)--> follower
    answers: mpsc::Receiver<(usize, Found)>,
}

impl Prober {
    pub fn start() -> Self {
        let (questions, asked) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let asked = Arc::new(Mutex::new(asked));
        // The tunnels end with the last of the threads.
        let tunnels = Arc::new(Tunnels::default());
        for _ in 0..THREADS {
            let (asked, answer, tunnels) = (Arc::clone(&asked), answer.clone(), Arc::clone(&tunnels));
            thread::spawn(move || work(&asked, &answer, &tunnels));
        }
        Self { questions, answers }
    }

    pub fn ask(&self, connection: usize, endpoint: Endpoint) {
        let _ = self.questions.send((connection, endpoint));
    }

    pub fn results(&self) -> Vec<(usize, Found)> {
        self.answers.try_iter().collect()
    }
}

fn work(
    asked: &Mutex<mpsc::Receiver<(usize, Endpoint)>>,
    answer: &mpsc::Sender<(usize, Found)>,
    tunnels: &Tunnels,
) {
    loop {
        let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((connection, endpoint)) = next else { return };
        let found = match &endpoint.ssh {
            Some(ssh) => tunnels.route(&endpoint, ssh),
            None => probe(&endpoint),
        };
        if answer.send((connection, found)).is_err() {
            return;
        }
    }
}

/// The address of the endpoint's control port that accepts a connection, or one sentence with the remedy.
fn probe(endpoint: &Endpoint) -> Found {
    let host = endpoint.host.trim_start_matches('[').trim_end_matches(']');
    let port = endpoint.base.control();
    let found = (host, port).to_socket_addrs().map_err(|error| {
        format!("cannot find host {host} ({error}): check its spelling, or give its address instead")
    })?;
    let mut addresses: Vec<_> = found.take(ADDRESSES).collect();
    // The collector listens on IPv4 by default.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    let mut last = None;
    for address in addresses {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(_) => {
                let data = SocketAddr::new(address.ip(), endpoint.base.data());
                return Ok(Route {
                    control: format!("tcp://{address}"),
                    data: format!("tcp://{data}"),
                    is_ipv6: address.is_ipv6(),
                });
            }
            Err(error) => last = Some(error),
        }
    }
    Err(match last {
        None => format!("host {host} has no address: give its address instead"),
        Some(error) => why(host, port, &error),
    })
}

fn why(host: &str, port: u16, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => format!(
            "no collector listens on {host}:{port}: start the job there under `xpu-top run`, or name its port, host:port; if its ranks run already, start `xpu-collector` there, and they connect to it; without a key, a collector listens on 127.0.0.1 only"
        ),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => format!(
            "{host}:{port} accepts no connection within {PATIENCE:?}: the host is down, or a firewall drops port {port}; --ssh needs no open port"
        ),
        _ => format!("cannot connect to {host}:{port}: {error}; check the network between here and there"),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use xpu_wire::endpoint::BasePort;

    use super::*;

    fn endpoint(host: &str, control: u16) -> Endpoint {
        Endpoint { host: host.to_owned(), base: BasePort(control - 2), ssh: None }
    }

    #[test]
    fn a_listener_is_found_and_its_absence_is_reported() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        for host in ["127.0.0.1", "localhost"] {
            let route = probe(&endpoint(host, address.port())).unwrap();
            assert_eq!((route.control, route.is_ipv6), (format!("tcp://{address}"), false));
        }
        drop(listener);
        let why = probe(&endpoint("127.0.0.1", address.port())).unwrap_err();
        assert!(
            why.starts_with("no collector listens on 127.0.0.1:")
                && why.contains("xpu-top run")
                && why.contains("start `xpu-collector` there"),
            "{why}"
        );
    }

    #[test]
    fn an_unknown_name_is_named() {
        let why = probe(&endpoint("no-such-host.invalid", 20_000)).unwrap_err();
        assert!(why.contains("cannot find host no-such-host.invalid"), "{why}");
    }

    #[test]
    fn an_ipv6_address_is_probed_without_its_brackets() {
        let why = probe(&endpoint("[::1]", 4));
        assert!(why.is_err_and(|why| !why.contains("cannot find")));
    }
}
