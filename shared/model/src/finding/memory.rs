//! Ranks whose GPU memory grows steadily, and when it will be used up.

use std::time::Duration;

use xpu_wire::{frame::MemoryGrowth, id::Rank};

use super::{Class, Confidence, Evidence, Finding, Kind, Severity, evidence::device::GrowingMemory};
use crate::job::{Job, RankView};

/// Longest time until the memory is used up for which growth is a finding: few jobs run unchanged for longer.
const SOON: Duration = Duration::from_hours(24);

/// A rank whose memory grows.
struct Growing<'a> {
    rank: Rank,
    view: &'a RankView,
    growth: MemoryGrowth,
    free: u64,
}

impl<'a> Growing<'a> {
    fn of(rank: Rank, view: &'a RankView) -> Option<Self> {
        let growth = view.latest()?.memory_growth.filter(|_| view.is_alive())?;
        let reading = view.device().filter(|reading| !reading.is_stale())?;
        let free = reading.memory_total?.checked_sub(reading.memory_used?)?;
        let one = Self { rank, view, growth, free };
        (one.left_s() <= SOON.as_secs_f64()).then_some(one)
    }

    /// Seconds until the free memory is used up.
    fn left_s(&self) -> f64 {
        self.free as f64 / self.growth.per_second()
    }
}

pub(super) fn growing(job: &Job) -> Option<Finding> {
    let ranks: Vec<_> = job.ranks().filter_map(|(rank, view)| Growing::of(rank, view)).collect();
    let worst = ranks.iter().min_by(|one, other| one.left_s().total_cmp(&other.left_s()))?;
    let named: Vec<Rank> = ranks.iter().map(|one| one.rank).collect();
    Some(Finding {
        kind: Kind::Device,
        class: Class::MemoryGrowth,
        ranks: named.clone(),
        confidence: Confidence::Likely,
        since_s: worst.growth.over.seconds(),
        evidence: Evidence::GrowingMemory(GrowingMemory {
            ranks: named,
            worst: worst.rank,
            host: worst.view.host().clone(),
            growth: worst.growth,
            free: worst.free,
            left_s: worst.left_s(),
        }),
        advice: "look for what is kept from step to step: tensors in lists, losses with their graph, caches (xpu-top status --json --rank N names the call sites that grew)".to_owned(),
        collective: None,
        severity: Severity::Minor,
        cost: None,
    })
}

#[cfg(test)]
mod tests {
    use xpu_simulation::Simulation;
    use xpu_wire::{
        frame::{Body, RankDigest},
        unit::Nanoseconds,
    };

    use super::*;
    use crate::job::Jobs;

    const GIB: u64 = 1 << 30;

    /// 12 MiB a step, two steps a second.
    fn growth() -> MemoryGrowth {
        let mib = |number: f64| number * 1_048_576.0;
        let over = Nanoseconds::from(Duration::from_mins(5));
        MemoryGrowth { per_step: mib(12.0), least: mib(11.0), most: mib(13.0), steps: 600, over }
    }

    /// The finding of a job of four ranks; rank 3 has this much memory left on its GPU.
    fn found(left: u64, change: impl Fn(&mut RankDigest)) -> Option<Finding> {
        let (mut jobs, simulation) = (Jobs::default(), Simulation::new(1, 1, 4));
        for second in 1..4 {
            for mut frame in simulation.digests(second) {
                let Body::Digest(digest) = &mut frame.body else { unreachable!() };
                let rank = &mut digest.ranks[3];
                rank.memory_growth = Some(growth());
                let reading = rank.device.as_mut().unwrap();
                (reading.memory_total, reading.memory_used) = (Some(80 * GIB), Some(80 * GIB - left));
                change(rank);
                jobs.fold(&frame);
            }
        }
        growing(jobs.foremost().unwrap())
    }

    #[test]
    fn a_rank_that_grows_is_named_with_the_time_that_is_left() {
        let finding = found(54 * GIB, |_| ()).unwrap();
        assert_eq!((finding.class, &finding.ranks[..]), (Class::MemoryGrowth, &[Rank(3)][..]));
        let said = finding.sentence();
        assert!(said.contains("rank 3"), "{said}");
        assert!(said.contains("12 MiB a step"), "{said}");
        assert!(said.contains("out of memory in about 38 m at this rate"), "{said}");
    }

    #[test]
    fn growth_that_will_not_matter_for_a_day_is_no_finding() {
        let slow = |rank: &mut RankDigest| rank.memory_growth.as_mut().unwrap().per_step /= 100.0;
        assert!(found(54 * GIB, slow).is_none());
        assert!(found(5 * GIB, slow).is_some());
    }

    #[test]
    fn growth_is_no_finding_where_the_free_memory_is_unknown_or_nothing_grows() {
        assert!(found(54 * GIB, |rank| rank.device = None).is_none());
        assert!(found(54 * GIB, |rank| rank.memory_growth = None).is_none());
    }
}
