//! A relay for a test: the real program, in front of the test's hosts.

use std::{net::TcpStream, path::Path, process::Command};

use crate::{
    built,
    place::Place,
    program::{Program, until},
};

/// The relay's first port.
pub const BASE: u16 = 29_610;

/// The command for `xpu-collector --relay` at `address`, in front of `hosts`, whose first port is
/// `hosts_base`.
pub fn command(place: &Place, address: &str, hosts: &str, hosts_base: u16, key: Option<&Path>) -> Command {
    let mut command = place.command(built::artifact("xpu-collector"));
    command.args(["--relay", "--hosts", hosts, "--hosts-base-port", &hosts_base.to_string()]);
    command.args(["--bind", address, "--base-port", &BASE.to_string(), "--host-name", "relay"]);
    match key {
        Some(key) => command.arg("--key-file").arg(key),
        None => command.arg("--no-key"),
    };
    command
}

/// Starts the relay, and waits until it listens.
///
/// # Panics
/// If it does not listen before the deadline.
#[track_caller]
pub fn start(place: &Place, address: &str, hosts: &str, hosts_base: u16, key: Option<&Path>) -> Program {
    let relay = Program::start(&mut command(place, address, hosts, hosts_base, key));
    until("the relay to listen", || TcpStream::connect((address, BASE + 2)).ok().map(drop));
    relay
}
