//! Simulates hosts and their ranks until standard input ends: `crowd_of_hosts HOSTS RANKS_PER_HOST [SLOW]`.
//! The GPU of rank SLOW is slower than the others. Prints the hosts' addresses and first port in the form
//! that a relay takes.

use std::io::{Read as _, Write as _};

use xpu_tests::crowd::{BASE, Crowd};
use xpu_wire::{id::Rank, simulation::Simulation};

fn main() {
    let usage = "HOSTS RANKS_PER_HOST [SLOW]: numbers";
    let numbers: Vec<u32> = std::env::args().skip(1).map(|word| word.parse().expect(usage)).collect();
    let &[hosts, ranks, ref slow @ ..] = &numbers[..] else { panic!("{usage}") };
    let mut simulation = Simulation::new(7, hosts, ranks);
    simulation.slow = slow.iter().map(|&rank| (Rank(rank), 1.25)).collect();
    let crowd = Crowd::of(simulation);
    crowd.start(0..hosts);
    println!("{} {}", crowd.list(), BASE.0);
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read(&mut [0]);
}
