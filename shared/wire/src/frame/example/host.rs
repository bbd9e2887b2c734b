//! Example frames about a host and its ranks.

use crate::{
    frame::{
        GpuLoad, GpuProcess, HostCpu, HostLoad, HostNeighbours, HostTimes, HostUse, MainThread, RankCpu,
        RankLoad, RankNeighbours, RankTimes, SampledPlace, StackFrame, Traffic,
    },
    id::{Pid, Rank},
    unit::{Moment, Nanoseconds},
};

/// A rank that waits for its data loader for much of the time.
pub fn times() -> HostTimes {
    let frame =
        StackFrame { function: "collate_fn".to_owned(), file: "/home/me/data.py".to_owned(), line: 40 };
    let times = RankTimes {
        rank: Rank(1),
        pid: Pid(7),
        interval: Nanoseconds(30_000_000_000),
        synchronizing: Nanoseconds(2_000_000_000),
        copying: Nanoseconds(1_000_000_000),
        launching: Nanoseconds(0),
        loading: Some(Nanoseconds(3_000_000_000)),
        collecting: None,
        main: Some(MainThread {
            samples: 40,
            loading: 30,
            places: vec![SampledPlace { samples: 25, frame: frame.clone() }],
            holders: vec![SampledPlace { samples: 9, frame }],
        }),
    };
    HostTimes { job: "j".into(), ranks: vec![times] }
}

/// Another process on a rank's GPU.
pub fn neighbours() -> HostNeighbours {
    let process = GpuProcess {
        pid: Pid(11),
        name: "python3".to_owned(),
        busy: Some(48),
        memory: Some(2 << 30),
        since: Moment(1_700_000_000_000_000_000),
    };
    let rank = RankNeighbours { rank: Rank(1), pid: Pid(7), processes: vec![process] };
    HostNeighbours { job: "j".into(), ranks: vec![rank] }
}

/// A rank whose thread waits for a core.
pub fn cpu() -> HostCpu {
    let cpu = RankCpu {
        rank: Rank(1),
        pid: Pid(7),
        interval: Nanoseconds(1_000_000_000),
        waited: Nanoseconds(800_000_000),
        thread: "pt_autograd_0".to_owned(),
        throttled: Some(Nanoseconds(0)),
        stopped: false,
    };
    HostCpu { job: "j".into(), ranks: vec![cpu] }
}

/// A host with one rank that is in use.
pub fn load() -> HostLoad {
    let traffic = |received, sent| Traffic { received: Some(received), sent: Some(sent) };
    let gpu = GpuLoad {
        sm: Some(0.75),
        dram: Some(0.5),
        pcie: traffic(1 << 30, 2 << 20),
        nvlink: Traffic::default(),
    };
    let rank = RankLoad {
        rank: Rank(1),
        pid: Pid(7),
        processes: 9,
        cpu: Some(Nanoseconds(3_500_000_000)),
        disk: traffic(4 << 20, 0),
        gpu: Some(gpu),
    };
    let host = HostUse {
        cores: 96,
        cpu: Some(Nanoseconds(24_000_000_000)),
        network: traffic(100_000, 200_000),
        rdma: Traffic { received: None, sent: None },
        disk: traffic(8 << 20, 1 << 20),
    };
    HostLoad { job: "j".into(), interval: Nanoseconds(1_000_000_000), host, ranks: vec![rank] }
}
