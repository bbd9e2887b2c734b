//! The hosts: whether each reports, its collector's version, lost frames, and the state of its GPUs.

mod gather;

use std::{collections::HashMap, time::Duration};

use xpu_client::arrival::{Endpoint, Link};
use xpu_model::{
    job::{Collector, Job, Jobs, RankView},
    stack::Ranks,
    status::{HostLoadStatus, STALE},
};
use xpu_wire::{
    frame::{Life, RankDigest, Throttle},
    id::{HostName, Rank},
    unit::Moment,
};

use super::{
    Connections,
    order::{Order, Sortable},
};

/// Largest number of blind spots of one host's hooks; most of its ranks have the same ones.
const BLIND: usize = 4;

#[derive(Debug, Default)]
pub struct Hosts {
    rows: Vec<Host>,
    pub(crate) order: Order<HostColumn>,
    selected: Option<HostName>,
    /// The version that most collectors have.
    pub version: Option<String>,
    made: Option<u64>,
}

/// One host.
#[derive(Clone, Debug, Default)]
pub struct Host {
    /// Its own name, or the given name until it has reported.
    pub name: HostName,
    pub health: Health,
    pub endpoint: Option<Endpoint>,
    /// The state of the connection to it, and since when; `None` for a recording.
    pub link: Option<(Link, Duration)>,
    pub collector: Option<Collector>,
    /// Whether its collector has another version than most.
    pub differs: bool,
    /// Ranks of the shown job: all on this host, the living ones, and those that ended without a goodbye.
    pub ranks: Ranks,
    pub living: usize,
    pub died: usize,
    /// Number of ranks of other jobs.
    pub others: usize,
    /// Time since its last report.
    pub age: Option<Duration>,
    pub lost_frames: u64,
    pub dropped_records: u64,
    pub untimed: u64,
    /// Share of wall time that its hooks take from launching threads, for the worst rank; and the budget.
    pub overhead: Option<f64>,
    pub budget: Option<f64>,
    /// The coarsest sampling rate.
    pub gemm_one_in: Option<u64>,
    pub collective_one_in: Option<u64>,
    /// Living ranks whose hook is off.
    pub off: usize,
    pub blind: Vec<String>,
    pub gpus: Gpus,
    /// What the host moves and computes, as last reported by its collector.
    pub load: Option<HostLoadStatus>,
}

/// The GPUs of one host that the driver reports.
#[derive(Clone, Debug, Default)]
pub struct Gpus {
    pub read: usize,
    /// The highest temperature in degrees Celsius, and the rank.
    pub hottest: Option<(u32, Rank)>,
    /// Power of all GPUs together, in watts.
    pub power: Option<f64>,
    pub limit: Option<f64>,
    /// The ranks whose clocks are held down, with the reason.
    pub held: Vec<(Rank, &'static str)>,
    pub xids: u32,
}

/// The state of a host, the worst last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Health {
    Up,
    /// The host has not reported yet.
    #[default]
    Connecting,
    /// It reports, but has a problem.
    Trouble,
    /// The connection is or was open, but no reports arrive.
    Silent,
    Down,
}

/// The columns by which the list can be sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostColumn {
    Health,
    Ranks,
    Age,
    Lost,
    Overhead,
    Heat,
    Power,
    Cpu,
    Network,
    Disk,
}

impl Sortable for HostColumn {
    const ALL: &'static [Self] = &[
        Self::Health,
        Self::Ranks,
        Self::Age,
        Self::Lost,
        Self::Overhead,
        Self::Heat,
        Self::Power,
        Self::Cpu,
        Self::Network,
        Self::Disk,
    ];

    fn title(self) -> &'static str {
        match self {
            Self::Health => "state",
            Self::Ranks => "ranks",
            Self::Age => "heard",
            Self::Lost => "lost",
            Self::Overhead => "ovh %",
            Self::Heat => "°C",
            Self::Power => "W",
            Self::Cpu => "CPU %",
            Self::Network => "net",
            Self::Disk => "disk",
        }
    }

    fn large_first(self) -> bool {
        !matches!(self, Self::Ranks)
    }
}

impl Host {
    fn take(&mut self, rank: Rank, view: &RankView) {
        self.ranks.insert(rank);
        self.living += usize::from(view.is_alive());
        self.died += usize::from(view.life() == Life::Died);
        let Some(digest) = view.latest() else { return };
        self.dropped_records += digest.dropped_records;
        self.untimed += digest.untimed;
        let share = |ppm: u32| f64::from(ppm) / 1e6;
        let most = |known: Option<f64>, more: f64| Some(known.map_or(more, |known| known.max(more)));
        self.overhead = most(self.overhead, share(digest.overhead_ppm));
        if let Some(budget) = digest.budget_ppm {
            self.budget = most(self.budget, share(budget));
        }
        if view.life() == Life::Alive {
            self.off += usize::from(!digest.enabled);
            self.gemm_one_in = self.gemm_one_in.max(Some(digest.gemm_rate.denominator()));
            self.collective_one_in = self.collective_one_in.max(Some(digest.collective_rate.denominator()));
        }
        for text in &digest.blind {
            if self.blind.len() < BLIND && !self.blind.contains(text) {
                self.blind.push(text.clone());
            }
        }
        if view.life() == Life::Alive {
            self.gpus.take(rank, digest);
        }
        if view.is_alive() {
            let load = view.load().filter(|load| view.last_report().since(load.at) < STALE);
            self.load = self.load.or_else(|| load.map(|load| HostLoadStatus::of(load.host, load.interval)));
        }
    }

    fn judge(&mut self) {
        let trouble = self.differs
            || self.lost_frames + self.dropped_records + self.untimed > 0
            || self.is_over_budget()
            || self.off > 0
            || !self.blind.is_empty()
            || !self.gpus.held.is_empty()
            || self.gpus.xids > 0
            || self.misses_ranks();
        self.health = match (&self.link, self.age) {
            (Some((Link::Down { .. }, _)), _) => Health::Down,
            (_, Some(age)) if age >= STALE && self.living > 0 => Health::Silent,
            (_, None) if self.link.is_some() => Health::Connecting,
            _ if trouble => Health::Trouble,
            _ => Health::Up,
        };
    }

    /// Whether ranks are missing. In a job that has ended in an orderly way, all ranks are gone but none is
    /// missing.
    pub fn misses_ranks(&self) -> bool {
        self.died > 0 || (self.living > 0 && self.living < self.ranks.len())
    }

    pub fn is_over_budget(&self) -> bool {
        self.overhead.zip(self.budget).is_some_and(|(overhead, budget)| overhead > budget)
    }

    /// Why the connection to the host is down.
    pub fn why(&self) -> Option<&str> {
        match &self.link {
            Some((Link::Down { why }, _)) => Some(why),
            _ => None,
        }
    }

    fn figure(&self, column: HostColumn) -> Option<f64> {
        match column {
            HostColumn::Health => Some(f64::from(self.health as u8)),
            HostColumn::Ranks => Some(self.living as f64),
            HostColumn::Age => self.age.map(|age| age.as_secs_f64().floor()),
            HostColumn::Lost => Some((self.lost_frames + self.dropped_records) as f64),
            HostColumn::Overhead => self.overhead,
            HostColumn::Heat => self.gpus.hottest.map(|(degrees, _)| f64::from(degrees)),
            HostColumn::Power => self.gpus.power,
            HostColumn::Cpu => self.load.and_then(|load| load.cpu_pct),
            HostColumn::Network => {
                self.load.and_then(HostLoadStatus::busiest_network).map(|rate| rate as f64)
            }
            HostColumn::Disk => self.load.and_then(|load| load.disk.larger()).map(|rate| rate as f64),
        }
    }
}

impl Gpus {
    fn take(&mut self, rank: Rank, digest: &RankDigest) {
        let Some(device) = digest.device.as_ref().filter(|device| !device.is_stale()) else { return };
        self.read += 1;
        let watts = |sum: &mut Option<f64>, more: Option<u32>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0.0) + f64::from(more) / 1e3);
            }
        };
        watts(&mut self.power, device.power);
        watts(&mut self.limit, device.power_limit);
        if let Some(degrees) = device.temperature
            && self.hottest.is_none_or(|(most, _)| degrees > most)
        {
            self.hottest = Some((degrees, rank));
        }
        let words = device.throttle.map(Throttle::words).unwrap_or_default();
        self.held.extend(words.first().map(|word| (rank, *word)));
        self.xids = self.xids.saturating_add(device.xids.unwrap_or(0));
    }
}

impl Hosts {
    /// Updates the list once a second, because this goes through all ranks.
    pub(crate) fn settle(
        &mut self,
        jobs: &Jobs,
        shown: Option<&Job>,
        connections: &Connections,
        arrived: &HashMap<HostName, Moment>,
        now: Moment,
    ) {
        if self.made != Some(now.0 / 1_000_000_000) {
            self.made = Some(now.0 / 1_000_000_000);
            self.rows = gather::hosts(jobs, shown, connections, arrived, now);
            self.version = gather::usual_version(&self.rows);
            for host in &mut self.rows {
                let version = host.collector.as_ref().map(|collector| &collector.version);
                host.differs = version.is_some() && version != self.version.as_ref();
                // A collector that is gone measures nothing.
                if host.age.is_some_and(|age| age >= STALE) {
                    (host.gpus, host.load) = (Gpus::default(), None);
                }
                host.judge();
            }
        }
        let order = self.order;
        self.rows.sort_by(|one, other| {
            let figures = (one.figure(order.by), other.figure(order.by));
            order.compare(figures.0, figures.1).then_with(|| one.name.cmp(&other.name))
        });
    }

    /// Makes the next redraw show a change of a connection at once.
    pub(crate) fn look_again(&mut self) {
        self.made = None;
    }

    pub fn all(&self) -> &[Host] {
        &self.rows
    }

    pub fn at(&self) -> usize {
        let chosen = |name: &HostName| self.rows.iter().position(|host| host.name == *name);
        self.selected.as_ref().and_then(chosen).unwrap_or(0)
    }

    pub fn selected(&self) -> Option<&Host> {
        self.rows.get(self.at())
    }

    pub(crate) fn select(&mut self, index: usize) {
        self.selected = self.rows.get(index).map(|host| host.name.clone());
    }
}
