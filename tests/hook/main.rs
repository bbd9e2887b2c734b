//! The hook's reports: scripts run on the stand-in libraries, and the tests read ZeroMQ messages and the
//! ledger.

mod addresses;
mod budget;
mod communicators;
mod counts;
mod device;
mod exchange;
mod exposed;
mod gemms;
mod graphs;
mod kernels;
mod ledger;
mod life;
mod limits;
mod memory;
mod plugin;
mod products;
mod record;
mod steps;
mod timing;
mod unmarked;
mod without_runtime;

use std::process::Command;

use xpu_tests::{
    listener::{Listener, Sender},
    place::Place,
    program::{Program, until},
};
use xpu_wire::{
    datatype::DataType,
    gemm::{ComputeType, GemmShape, Routine},
    id::Pid,
    ledger::{LedgerPage, Reading},
};

/// Ranks that run the same script, and the collector that receives their messages.
struct Job {
    place: Place,
    listener: Listener,
    ranks: Vec<Program>,
}

impl Job {
    /// A job of one rank.
    fn alone(sample: &str, script: &str) -> Self {
        Self::of(1, &[("XPU_TOP_SAMPLE", sample)], script)
    }

    fn of(world: usize, set: &[(&str, &str)], script: &str) -> Self {
        Self::at(Place::new(), world, set, script)
    }

    /// A job of one rank, under this Python.
    fn alone_under(python: &str, script: &str) -> Self {
        let place = Place::new();
        let listener = Listener::at(&place.socket());
        let mut command = place.script_under(python, &format!("from gpu import *\n{script}"));
        command.env("RENDEZVOUS", place.path("")).env("WORLD_SIZE", "1").env("RANK", "0");
        let ranks = vec![Program::start(&mut command)];
        Self { place, listener, ranks }
    }

    fn at(place: Place, world: usize, set: &[(&str, &str)], script: &str) -> Self {
        let listener = Listener::at(&place.socket());
        let ranks =
            (0..world).map(|rank| Program::start(&mut command(&place, world, rank, set, script))).collect();
        Self { place, listener, ranks }
    }

    /// Everything that a rank has sent, once it reports that this step is complete.
    #[track_caller]
    fn after_step(&self, rank: usize, step: u64) -> Sender {
        self.listener.after_step(self.ranks[rank].pid(), step)
    }

    /// The ledger of a rank, found in the same way as by the collector.
    #[track_caller]
    fn ledger(&self, rank: usize) -> LedgerPage {
        let pid = self.ranks[rank].pid();
        let sender = until("a rank to say where its ledger is", || self.listener.sender(pid));
        let descriptor = sender.hellos[0].ledger.expect("it has one");
        LedgerPage::open(Pid(pid), descriptor).expect("it can be mapped")
    }

    /// Ends the ranks, and checks that each ends without an error.
    #[track_caller]
    fn end(self) {
        for rank in self.ranks {
            let outcome = rank.end();
            assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
        }
        assert_eq!(self.place.leftovers(), Vec::<std::path::PathBuf>::new());
    }
}

fn command(place: &Place, world: usize, rank: usize, set: &[(&str, &str)], script: &str) -> Command {
    let mut command = place.script(&format!("from gpu import *\n{script}"));
    command
        .env("RENDEZVOUS", place.path(""))
        .env("WORLD_SIZE", world.to_string())
        .env("RANK", rank.to_string());
    command.envs(set.iter().copied());
    command
}

fn shape([m, n, k]: [u64; 3], datatype: DataType, transposed: (bool, bool)) -> GemmShape {
    let (compute, routine) = (ComputeType::Float32, Routine::Gemm);
    GemmShape { m, n, k, batch: 1, datatype, compute, transposed, routine }
}

/// Waits until the ledger satisfies `check`.
#[track_caller]
fn reads(ledger: &LedgerPage, what: &str, check: impl Fn(&Reading) -> bool) -> Reading {
    until(what, || Some(ledger.ledger().read()).filter(&check))
}
