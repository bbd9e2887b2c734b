//! Simulates hosts and their ranks until standard input ends: `crowd_of_hosts HOSTS RANKS_PER_HOST [SLOW [AGO]]`.
//! The GPU of rank SLOW is slower than the others; with AGO, the rank has been late for AGO seconds, and the hosts
//! have a history, from the code of a collector. Prints the hosts' addresses and first port in the form that
//! a relay takes.

#[path = "lab/crowd.rs"]
#[expect(dead_code, unreachable_pub, reason = "the lab of the tests uses all of it")]
mod crowd;

use std::{
    io::{Read as _, Write as _},
    thread,
};

use crowd::{BASE, BEFORE, Crowd};
use xpu_collector::OfflineHistory;
use xpu_net::recall;
use xpu_simulation::Simulation;
use xpu_wire::{frame::History, id::Rank};

fn main() {
    let usage = "HOSTS RANKS_PER_HOST [SLOW [AGO]]: numbers";
    let numbers: Vec<u32> = std::env::args().skip(1).map(|word| word.parse().expect(usage)).collect();
    let &[hosts, ranks, ref fault @ ..] = &numbers[..] else { panic!("{usage}") };
    let mut simulation = Simulation::new(7, hosts, ranks);
    let crowd = if let [slow, ago] = *fault {
        simulation.late = vec![(Rank(slow), BEFORE.saturating_sub(ago.into())..u64::MAX)];
        let past = past(&simulation, ago);
        Crowd::remembering(simulation, past)
    } else {
        simulation.slow = fault.iter().map(|&rank| (Rank(rank), 1.25)).collect();
        Crowd::of(simulation)
    };
    crowd.start(0..hosts);
    println!("{} {}", crowd.list(), BASE.0);
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read(&mut [0]);
}

/// The history of each host, from as long before the fault as it has lasted.
fn past(simulation: &Simulation, ago: u32) -> Vec<Vec<History>> {
    let from = BEFORE.saturating_sub(2 * u64::from(ago));
    let (digests, now) = (recall::digests(simulation.hosts as usize), simulation.at(BEFORE));
    let past = |host| {
        let mut past = OfflineHistory::new(simulation.at(from));
        (from..=BEFORE).for_each(|second| past.keep(&simulation.digest_of(host, second)));
        past.for_new_viewer(&simulation.job, simulation.started, digests, now)
    };
    let hosts: Vec<_> = (0..simulation.hosts).collect();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let part = |hosts: &'_ [u32]| hosts.iter().map(|&host| past(host)).collect::<Vec<_>>();
        let parts: Vec<_> = hosts
            .chunks(hosts.len().div_ceil(workers))
            .map(|hosts| scope.spawn(move || part(hosts)))
            .collect();
        parts.into_iter().flat_map(|part| part.join().expect("a part of the history")).collect()
    })
}
