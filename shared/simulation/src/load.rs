//! Load of the simulated cluster's hosts, processes and GPUs.

use super::Simulation;
use xpu_wire::{
    frame::{Body, Frame, GpuLoad, HostLoad, HostUse, RankLoad, Traffic},
    id::Rank,
    unit::Nanoseconds,
};

const SECOND: Nanoseconds = Nanoseconds(1_000_000_000);

impl Simulation {
    /// The loads of every collector in second number `seconds`.
    pub fn loads(&self, seconds: u64) -> Vec<Frame> {
        let load = |host: u32| HostLoad {
            job: self.job.clone(),
            interval: SECOND,
            host: self.host_use(host, seconds),
            ranks: self.ranks_of(host).map(|rank| self.load(rank, seconds)).collect(),
        };
        (0..self.hosts).map(|host| self.frame(host, seconds, Body::Load(load(host)))).collect()
    }

    fn host_use(&self, host: u32, seconds: u64) -> HostUse {
        let wave = |number| 0.9 + 0.2 * self.noise(Rank(host), number ^ seconds << 8);
        let traffic = |received: f64, sent: f64| Traffic {
            received: Some((received * wave(11)) as u64),
            sent: Some((sent * wave(12)) as u64),
        };
        HostUse {
            cores: 192,
            cpu: Some(Nanoseconds((42e9 * wave(10)) as u64)),
            network: traffic(2.4e6, 1.1e6),
            rdma: traffic(38.0e9, 38.0e9),
            disk: traffic(420e6, 3e6),
        }
    }

    fn load(&self, rank: Rank, seconds: u64) -> RankLoad {
        let wave = |number| 0.95 + 0.1 * self.noise(rank, number ^ seconds << 8);
        let traffic = |received: f64, sent: f64, number: u64| Traffic {
            received: Some((received * wave(number)) as u64),
            sent: Some((sent * wave(number + 1)) as u64),
        };
        RankLoad {
            rank,
            pid: Self::pid(rank),
            processes: 9,
            cpu: Some(Nanoseconds((4.6e9 * wave(13)) as u64)),
            disk: traffic(52e6, 0.0, 14),
            gpu: Some(GpuLoad {
                sm: Some(0.82 * wave(16)),
                dram: Some(0.41 * wave(17)),
                pcie: traffic(1.6e9, 0.3e9, 18),
                nvlink: traffic(96e9, 94e9, 20),
            }),
        }
    }
}
