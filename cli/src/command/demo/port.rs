//! Ports for the simulated hosts: the same three ports on one address per host.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::bail;
use xpu_wire::endpoint::BasePort;

/// Number of base ports tried after the usual one.
const TRIES: u16 = 200;

/// The address of a simulated host.
pub(super) fn address(node: u32) -> Ipv4Addr {
    // Nodes are at most 250 (MOST_NODES).
    Ipv4Addr::new(127, 0, 0, node as u8 + 1)
}

/// The given base port, the usual one, or the next that is free on all simulated hosts.
pub(super) fn choose(named: Option<BasePort>, nodes: u32) -> anyhow::Result<BasePort> {
    if let Some(base) = named {
        if is_free(base, nodes) {
            return Ok(base);
        }
        bail!("a port from {} to {} is taken; choose another --base-port", base.http(), base.control());
    }
    let candidates = (0..TRIES).filter_map(|n| BasePort::new(BasePort::DEFAULT.0 + 3 * n));
    match candidates.into_iter().find(|base| is_free(*base, nodes)) {
        Some(base) => Ok(base),
        None => bail!("no free ports from {} on; choose them with --base-port", BasePort::DEFAULT.0),
    }
}

fn is_free(base: BasePort, nodes: u32) -> bool {
    let ports = [base.http(), base.data(), base.control()];
    (0..nodes).all(|node| ports.iter().all(|&port| TcpListener::bind((address(node), port)).is_ok()))
}

/// The command to watch it from another terminal.
pub(super) fn viewer(nodes: u32, base: BasePort) -> String {
    let hosts = if nodes == 1 { "127.0.0.1".to_owned() } else { format!("127.0.0.[1-{nodes}]") };
    let port = if base == BasePort::DEFAULT { String::new() } else { format!(" --base-port {}", base.0) };
    format!("xpu-top --hosts '{hosts}'{port}")
}

pub(super) fn invitation(nodes: u32, base: BasePort) -> String {
    let (first, last) = (base.http(), base.control());
    format!("demo: ports {first} to {last}; from another terminal: {}", viewer(nodes, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_taken_on_one_address_moves_all() {
        let first = choose(None, 3).unwrap();
        let _taken = TcpListener::bind((address(2), first.control())).unwrap();
        let second = choose(None, 3).unwrap();
        assert!(second > first);
        assert!(choose(Some(first), 3).unwrap_err().to_string().contains("--base-port"));
        assert!(invitation(3, second).contains(&format!("'127.0.0.[1-3]' --base-port {}", second.0)));
    }
}
