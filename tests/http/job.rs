//! Jobs to query: `xpu-top demo`, whose collectors are real and have no key, and a host with a key.

use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddr},
    process::Command,
};

use serde_json::Value;
use xpu_tests::{
    built,
    host::{BASE, Host},
    place::Place,
    program::{Program, run, until},
};

use crate::client::Client;

/// A demo on one simulated host, which trains until it is dropped.
#[derive(Debug)]
pub(crate) struct Demo {
    pub(crate) place: Place,
    program: Option<Program>,
    base: u16,
    /// A lock, so that one demo runs at a time: each demo takes all cores of a small machine.
    _turn: File,
}

impl Demo {
    pub(crate) fn start(line: &str, set: &[(&str, &str)]) -> Self {
        let turn = File::create(std::env::temp_dir().join("xpu-top-demo-tests")).expect("a file");
        turn.lock().expect("a lock");
        let place = Place::new();
        let mut command = command(&place, "demo --headless --steps 100000");
        command.env("TMPDIR", place.path("")).envs(set.iter().copied()).args(line.split_whitespace());
        let program = Program::start(&mut command);
        let base = until("the demo to say its ports", || {
            let said = program.said();
            let rest = said.split_once("demo: ports ")?.1;
            rest.split(' ').next()?.parse().ok()
        });
        let demo = Self { place, program: Some(program), base, _turn: turn };
        until("the job to train", || (demo.status()?["steps"]["min"].as_u64()? >= 5).then_some(()));
        demo
    }

    /// A client of one simulated host.
    pub(crate) fn client(&self, node: u8) -> Client {
        Client { address: SocketAddr::from((Ipv4Addr::new(127, 0, 0, node), self.base)), token: None }
    }

    pub(crate) fn status(&self) -> Option<Value> {
        serde_json::from_str(&self.ask("status --json --now")).ok()
    }

    pub(crate) fn ask(&self, line: &str) -> String {
        let mut command = command(&self.place, line);
        run(command.args(["--hosts", "127.0.0.1", "--base-port", &self.base.to_string()])).stdout
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        if let Some(program) = self.program.take() {
            program.signal("TERM");
            program.end();
        }
    }
}

/// `xpu-top` with a home folder that has no key.
fn command(place: &Place, line: &str) -> Command {
    let mut command = place.command(built::artifact("xpu-top"));
    command.env("HOME", place.path("")).env_remove("XDG_CONFIG_HOME").args(line.split_whitespace());
    command
}

/// A client for a host with a key. Its token is the output of `xpu-top keygen --token`.
pub(crate) fn client_of(host: &Host) -> Client {
    let token = run(host.xpu_top("keygen --token -o").arg(host.key())).stdout.trim().to_owned();
    assert_eq!(token.len(), 64, "{token}");
    let base: u16 = BASE.parse().expect("a port");
    Client { address: SocketAddr::new(host.address.parse().expect("an address"), base), token: Some(token) }
}
