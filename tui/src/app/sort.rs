//! The order in which ranks are listed.

use std::cmp::Ordering;

use xpu_model::status::RankStatus;

use super::{Metric, Row, Urgency};

/// The possible orders: by findings, which is no column, and by the table's columns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Column {
    /// The default order: ranks named in findings first, then failing ones, then the others.
    #[default]
    Findings,
    Rank,
    Host,
    Pid,
    Step,
    StepTime,
    Gemm,
    Bus,
    Skew,
    Gpu,
    Clock,
    Power,
    Temperature,
    Memory,
    State,
}

impl Column {
    pub const ALL: [Self; 15] = [
        Self::Findings,
        Self::Rank,
        Self::Host,
        Self::Pid,
        Self::Step,
        Self::StepTime,
        Self::Gemm,
        Self::Bus,
        Self::Skew,
        Self::Gpu,
        Self::Clock,
        Self::Power,
        Self::Temperature,
        Self::Memory,
        Self::State,
    ];

    /// The driver's data about the GPU.
    pub const DEVICE: [Self; 5] = [Self::Gpu, Self::Clock, Self::Power, Self::Temperature, Self::Memory];

    /// Its name in `:sort`, and in a filter.
    pub fn word(self) -> &'static str {
        match self {
            Self::Findings => "findings",
            Self::Rank => "rank",
            Self::Host => "host",
            Self::Pid => "pid",
            Self::Step => "step",
            Self::StepTime => "step_ms",
            Self::Gemm => "tflops",
            Self::Bus => "bus",
            Self::Skew => "skew",
            Self::Gpu => "util",
            Self::Clock => "clock",
            Self::Power => "power",
            Self::Temperature => "temp",
            Self::Memory => "mem",
            Self::State => "state",
        }
    }

    /// The column of this name; earlier versions called arrival skew `late`.
    pub fn called(word: &str) -> Option<Self> {
        let word = if word == "late" { Self::Skew.word() } else { word };
        Self::ALL.into_iter().find(|one| one.word() == word)
    }

    /// Its title in the head of the table, with units.
    pub fn title(self) -> &'static str {
        match self {
            Self::Findings => "findings",
            Self::Rank => "rank",
            Self::Host => "host",
            Self::Pid => "pid",
            Self::Step => "step",
            Self::StepTime => "step ms",
            Self::Gemm => "TFLOPS",
            Self::Bus => "bus GB/s",
            Self::Skew => "skew ms",
            Self::Gpu => "GPU %",
            Self::Clock => "SM MHz",
            Self::Power => "W",
            Self::Temperature => "°C",
            Self::Memory => "memory",
            Self::State => "state",
        }
    }

    /// The meaning of an abbreviated title.
    pub fn means(self) -> &'static str {
        match self {
            Self::Findings => "ranks named in findings first",
            Self::Rank | Self::Host | Self::Step => "",
            Self::Pid => "process",
            Self::StepTime => "mean step time",
            Self::Gemm => "rate of its GEMMs",
            Self::Bus => "NCCL bus bandwidth",
            Self::Skew => "median arrival skew",
            Self::Gpu => "time with a kernel running",
            Self::Clock => "SM clock",
            Self::Power => "power",
            Self::Temperature => "temperature",
            Self::Memory => "GPU memory in use",
            Self::State => "hung, slow, silent",
        }
    }

    /// The quantity of this column by which ranks are compared.
    pub fn metric(self) -> Option<Metric> {
        Some(match self {
            Self::StepTime => Metric::StepTime,
            Self::Gemm => Metric::Gemm,
            Self::Bus => Metric::Bus,
            Self::Skew => Metric::Skew,
            Self::Gpu => Metric::Busy,
            Self::Clock => Metric::Clock,
            Self::Power => Metric::Power,
            Self::Temperature => Metric::Temperature,
            Self::Memory => Metric::Memory,
            Self::Findings | Self::Rank | Self::Host | Self::Pid | Self::Step | Self::State => return None,
        })
    }

    /// Whether large values are bad, and so come first.
    fn large_first(self) -> bool {
        matches!(self, Self::StepTime | Self::Skew | Self::Temperature | Self::Memory | Self::State)
    }

    fn compare(self, one: &Row, other: &Row) -> Ordering {
        let (a, b) = (&one.status, &other.status);
        // Unknown values come last in either direction.
        let known = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => self.turned(a.total_cmp(&b)),
            (a, b) => b.is_some().cmp(&a.is_some()),
        };
        match self {
            Self::Findings => one.urgency().cmp(&other.urgency()),
            Self::Rank => Ordering::Equal,
            Self::Host => a.host.cmp(&b.host),
            Self::Pid => a.pid.cmp(&b.pid),
            Self::Step => {
                let step = |status: &RankStatus| status.step_or_bound().map(|step| step.0 as f64);
                known(step(a), step(b))
            }
            Self::StepTime => known(a.step_ms_mean, b.step_ms_mean),
            Self::Gemm => known(a.gemm_tflops.map(|rate| rate.0), b.gemm_tflops.map(|rate| rate.0)),
            Self::Bus => known(a.bus_gb_s.map(|rate| rate.0), b.bus_gb_s.map(|rate| rate.0)),
            Self::Skew => known(a.lateness_ms_p50, b.lateness_ms_p50),
            Self::Gpu | Self::Clock | Self::Power | Self::Temperature | Self::Memory => {
                known(self.of_device(a), self.of_device(b))
            }
            Self::State => self.turned(one.severity().cmp(&other.severity())),
        }
    }

    /// A figure of the rank's GPU.
    fn of_device(self, rank: &RankStatus) -> Option<f64> {
        let device = rank.device.as_ref()?;
        match self {
            Self::Gpu => device.gpu_pct.map(f64::from),
            Self::Clock => device.sm_mhz.map(f64::from),
            Self::Power => device.power_w,
            Self::Temperature => device.temperature_c.map(f64::from),
            Self::Memory => device.memory_used_bytes.map(|bytes| bytes as f64),
            _ => None,
        }
    }

    fn turned(self, order: Ordering) -> Ordering {
        if self.large_first() { order.reverse() } else { order }
    }
}

/// A column, worst first or reversed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sort {
    pub column: Column,
    pub reversed: bool,
}

impl Sort {
    /// Whether values grow downwards.
    pub fn is_rising(self) -> bool {
        self.column.large_first() == self.reversed
    }

    /// Number of rows that come first because of a problem; 0 if all rows do.
    pub fn set_off(self, order: &[usize], rows: &[Row]) -> usize {
        if self != Self::default() {
            return 0;
        }
        let calm = order.partition_point(|&row| rows[row].urgency() < Urgency::Calm);
        if calm < order.len() { calm } else { 0 }
    }

    /// Indices of the rows in listed order; equal ones by rank.
    pub fn order(self, rows: &[Row]) -> Vec<usize> {
        self.arrange((0..rows.len()).collect(), rows)
    }

    /// Some of the rows, in their own order.
    pub fn arrange(self, mut order: Vec<usize>, rows: &[Row]) -> Vec<usize> {
        if self.column != Column::Rank {
            order.sort_by(|&a, &b| self.column.compare(&rows[a], &rows[b]));
        }
        if self.reversed {
            order.reverse();
        }
        order
    }
}

#[cfg(test)]
mod tests {
    use xpu_model::{finding::Kind, status::RankState};
    use xpu_wire::frame::Life;

    use super::*;
    use crate::app::job_view::tests::row;

    fn listed(column: Column, reversed: bool) -> Vec<u32> {
        let mut rows: Vec<_> = (0..4).map(|rank| row(rank, "a")).collect();
        for (row, late) in rows.iter_mut().zip([Some(1.0), None, Some(9.0), Some(1.0)]) {
            row.status.lateness_ms_p50 = late;
        }
        Sort { column, reversed }.order(&rows).into_iter().map(|index| rows[index].status.rank.0).collect()
    }

    #[test]
    fn the_worst_come_first_and_the_unknown_last() {
        assert_eq!(listed(Column::Skew, false), [2, 0, 3, 1]);
        assert_eq!(listed(Column::Rank, false), [0, 1, 2, 3]);
        assert_eq!(listed(Column::Rank, true), [3, 2, 1, 0]);
    }

    #[test]
    fn troubled_ranks_come_first_by_rank_until_a_sort_is_chosen() {
        let mut rows: Vec<_> = (0..6).map(|rank| row(rank, "a")).collect();
        rows[4].named = Some(Kind::SlowRank);
        rows[2].named = Some(Kind::Device);
        rows[1].status.state = RankState::Silent;
        // A rank that ended in an orderly way has not failed.
        (rows[5].life, rows[5].status.state) = (Life::Ended, RankState::Exited);
        let sort = Sort::default();
        let order = sort.order(&rows);
        assert_eq!((order.as_slice(), sort.set_off(&order, &rows)), (&[2, 4, 1, 0, 3, 5][..], 3));
        let by_rank = Sort { column: Column::Rank, reversed: false };
        let order = by_rank.order(&rows);
        assert_eq!((order.as_slice(), by_rank.set_off(&order, &rows)), (&[0, 1, 2, 3, 4, 5][..], 0));
        for row in &mut rows {
            row.named = Some(Kind::Hang);
        }
        assert_eq!(sort.set_off(&sort.order(&rows), &rows), 0);
    }

    #[test]
    fn skew_falls_and_ranks_rise() {
        let by = |column| Sort { column, reversed: false };
        assert!(Sort::default().is_rising() && !by(Column::Skew).is_rising());
    }
}
