//! Hosts whose ranks are only pretended, until standard input ends: `crowd_of_hosts HOSTS RANKS_PER_HOST`. Prints
//! their addresses and their first port, as a relay takes them.

use std::io::{Read as _, Write as _};

use xpu_tests::crowd::{BASE, Crowd};

fn main() {
    let mut numbers =
        std::env::args().skip(1).map(|word| word.parse().expect("HOSTS RANKS_PER_HOST, two numbers"));
    let (hosts, ranks) = (numbers.next().expect("HOSTS"), numbers.next().expect("RANKS_PER_HOST"));
    let crowd = Crowd::new(hosts, ranks);
    crowd.speak(0..hosts);
    println!("{} {}", crowd.list(), BASE.0);
    let _ = std::io::stdout().flush();
    let _ = std::io::stdin().read(&mut [0]);
}
