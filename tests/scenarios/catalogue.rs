//! Every kind of job and of fault, generated from a seed.

use xpu_model::finding::{Class, Kind};

use crate::{
    chance::Chance,
    fault::{Fault, Stall},
    program::Layout,
    scenario::{Expected, Named, Noise, Scenario, Setting},
};

/// The names of all scenarios, in the order of the table.
pub(crate) const NAMES: [&str; 64] = [
    "healthy: data parallel",
    "healthy: sharded",
    "healthy: tensor x data parallel",
    "healthy: pipeline",
    "healthy: experts, unevenly loaded",
    "healthy: checkpoints",
    "healthy: jittery network",
    "healthy: warm-up that compiles",
    "healthy: a rank comes late",
    "healthy: longer sequences, longer steps",
    "healthy: short pauses",
    "healthy: many buckets, few timed",
    "healthy: bound by its hosts",
    "healthy: bursts of ten steps",
    "healthy: evaluations",
    "healthy: sequences that grow",
    "healthy: accumulated gradients",
    "healthy: one rank",
    "one rank: slow compute",
    "one rank: throttled clocks",
    "one rank: slow data loader",
    "one rank: copies",
    "a slightly slower GPU",
    "an expert with more to do",
    "slow compute",
    "slow compute, half of the ranks",
    "throttled clocks",
    "slow data loader",
    "slow data loader, many buckets",
    "more work than the others",
    "a neighbour on its GPU",
    "copies",
    "a thread that holds the GIL",
    "stopped and continued",
    "checkpoints of one rank",
    "slow compute that ends",
    "two faults at once",
    "pauses of one rank",
    "two late ranks in turns",
    "late in every seventh step",
    "late in the backward pass",
    "pauses of every rank",
    "slow link",
    "slow network",
    "step regression",
    "memory nearly full",
    "device error",
    "hang: on the CPU",
    "hang: behind its own GPU",
    "hang: ended early",
    "hang: stopped",
    "hang: dead",
    "hang: deadlock of two communicators",
    "hang: another operation",
    "hang: other bytes",
    "hang: one call out of step",
    "hang: not launched",
    "hang: in the kernel",
    "hang: done on all but one",
    "hang: making a communicator",
    "hang: ending a communicator",
    "hang: not sent",
    "hang: jittery network, on the CPU",
    "hang: in the first steps",
];

/// Scenarios with a finding near the reporting threshold: it is right to report it, and right to omit it. Any
/// other finding is wrong.
const MAY_BE_LEFT: [&str; 2] = ["a slightly slower GPU", "an expert with more to do"];

/// Scenarios that are also played with two and three ranks.
const OF_FEW: [&str; 21] = [
    "healthy: data parallel",
    "healthy: bound by its hosts",
    "healthy: sharded",
    "slow compute",
    "throttled clocks",
    "slow data loader",
    "more work than the others",
    "pauses of one rank",
    "healthy: bursts of ten steps",
    "a neighbour on its GPU",
    "copies",
    "a thread that holds the GIL",
    "stopped and continued",
    "checkpoints of one rank",
    "slow compute that ends",
    "two faults at once",
    "healthy: evaluations",
    "healthy: sequences that grow",
    "healthy: accumulated gradients",
    "late in every seventh step",
    "late in the backward pass",
];

const LAYOUTS: [Layout; 5] =
    [Layout::Ddp, Layout::Fsdp, Layout::TensorData, Layout::Pipeline, Layout::Experts];

/// One scenario, or `None` if it cannot be played.
pub(crate) fn scenario(name: &'static str, ranks: u32, seed: u64) -> Option<Scenario> {
    let chance =
        Chance(seed).of(name.len() as u64).of(u64::from(ranks)).of(name.as_bytes()[name.len() - 1].into());
    let steps: &[f64] = if ranks > 64 { &[0.5, 0.8] } else { &[0.1, 0.25, 0.6] };
    let step = chance.one_of(1, steps);
    let layout = chance.one_of(2, &LAYOUTS);
    let rank = chance.below(3, ranks);
    let from = if ranks > 64 { 24.0 } else { chance.between(4, 30.0, 45.0) };
    let mut setting = Setting {
        seed: chance.0,
        ranks,
        layout,
        step,
        noise: Noise::USUAL,
        // The sampling rate is what a governor would choose for steps of this length.
        timed: if step < 0.2 { (4, chance.below(5, 3) as u8) } else { (3, chance.below(5, 2) as u8) },
        ahead: chance.share(6) < 0.6,
        burst: 1,
        host_bound: false,
        warm_up: false,
        fault: Fault::None,
        from,
        to: f64::INFINITY,
        until: from + 34.0,
    };
    if ranks < 4 {
        setting.layout = chance.one_of(2, &[Layout::Ddp, Layout::Fsdp]);
    }
    let expected = fill(name, &mut setting, chance, rank).ok()?;
    // With few ranks only the cost rule applies; the other rules need more of them.
    let is_played = match setting.layout {
        Layout::Alone => ranks == 1,
        Layout::Ddp | Layout::Fsdp | Layout::Accumulated => ranks >= 4 || ranks > 1 && OF_FEW.contains(&name),
        _ => ranks >= 4,
    };
    if !is_played {
        return None;
    }
    if matches!(setting.fault, Fault::Stall { .. }) {
        setting.until = from + 30.0;
    }
    let may_be_left = MAY_BE_LEFT.contains(&name);
    Some(Scenario { setting, expected, may_be_left })
}

/// This build cannot play the scenario, or not with this number of ranks.
struct NotPlayed;

fn one(kind: Kind, class: Class, rank: u32) -> Expected {
    Expected { kind, classes: vec![class], ranks: Named::Exactly(vec![rank]) }
}

/// As in a real job with short steps, few of the many collectives are timed.
fn many_buckets(setting: &mut Setting) -> Result<(), NotPlayed> {
    if setting.ranks > 64 {
        return Err(NotPlayed);
    }
    (setting.layout, setting.step, setting.timed) = (Layout::Buckets, 0.1, (4, 5));
    Ok(())
}

/// Sets the scenario's fault, and returns the expected finding.
#[expect(clippy::too_many_lines, reason = "one arm per scenario")]
fn fill(
    name: &'static str,
    setting: &mut Setting,
    chance: Chance,
    rank: u32,
) -> Result<Vec<Expected>, NotPlayed> {
    let ranks = setting.ranks;
    let slow = |class| Some(one(Kind::SlowRank, class, rank));
    let stall = |setting: &mut Setting, how| {
        setting.fault = Fault::Stall { rank, how };
        match how {
            // A swapped order shows only where two ranks have two communicators in common.
            Stall::Order => {
                setting.layout = chance.one_of(20, &[Layout::Pipeline, Layout::Experts]);
                setting.ahead = false;
            }
            Stall::Operation | Stall::Bytes => {
                setting.ahead = false;
                setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp, Layout::Experts]);
            }
            Stall::Skip => {
                setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp, Layout::Buckets]);
            }
            Stall::Unsent => {
                setting.layout = Layout::Pipeline;
                setting.ahead = true;
            }
            _ => {}
        }
    };
    let hang = |class| Some(one(Kind::Hang, class, rank));
    // The rank is compared only with its own past.
    let alone = |setting: &mut Setting, fault, class| {
        (setting.layout, setting.fault) = (Layout::Alone, fault);
        Some(Expected { kind: Kind::Regression, classes: vec![class], ranks: Named::Anyone })
    };
    let healthy = |setting: &mut Setting, layout| {
        setting.layout = layout;
        None
    };
    let expected = match name {
        "healthy: data parallel" => healthy(setting, Layout::Ddp),
        "healthy: sharded" => healthy(setting, Layout::Fsdp),
        "healthy: tensor x data parallel" => healthy(setting, Layout::TensorData),
        "healthy: pipeline" => healthy(setting, Layout::Pipeline),
        "healthy: experts, unevenly loaded" => healthy(setting, Layout::Experts),
        "healthy: checkpoints" => {
            setting.fault = Fault::Checkpoint {
                seconds: chance.between(10, 4.0, 22.0),
                every: chance.between(11, 30.0, 45.0),
            };
            setting.until += 30.0;
            None
        }
        "healthy: jittery network" => {
            setting.noise = Noise::JITTERY;
            None
        }
        "healthy: bursts of ten steps" => {
            (setting.burst, setting.ahead) = (10, true);
            healthy(setting, chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]))
        }
        "healthy: warm-up that compiles" => {
            setting.warm_up = true;
            None
        }
        "healthy: a rank comes late" => {
            setting.fault = Fault::LateStart { rank, seconds: chance.between(10, 10.0, 50.0) };
            setting.until = 75.0;
            None
        }
        // As on two H100s (docs/measurements-log.md): kernels are small, few GEMMs are timed, and the rates
        // of timed GEMMs vary by a third.
        "healthy: bound by its hosts" => {
            if ranks > 64 {
                return Err(NotPlayed);
            }
            (setting.host_bound, setting.step, setting.timed) = (true, 0.02, (6, 5));
            setting.noise.shapes = 1.0;
            healthy(setting, chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]))
        }
        "healthy: longer sequences, longer steps" => {
            setting.fault = Fault::MoreWork { factor: chance.between(10, 1.15, 1.4) };
            None
        }
        "healthy: evaluations" => {
            setting.fault = Fault::Evaluations {
                seconds: chance.between(10, 1.0, 4.0),
                every: (chance.between(11, 6.0, 12.0) / setting.step) as u64,
            };
            healthy(setting, chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]))
        }
        "healthy: sequences that grow" => {
            setting.fault = Fault::Growing { share: chance.between(10, 0.004, 0.02) };
            healthy(setting, chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]))
        }
        "healthy: accumulated gradients" => {
            setting.step = setting.step.max(0.4);
            healthy(setting, Layout::Accumulated)
        }
        "healthy: one rank" => healthy(setting, Layout::Alone),
        "one rank: slow compute" => {
            let factor = chance.between(10, 1.2, 2.0);
            alone(setting, Fault::Compute { ranks: vec![rank], factor }, Class::Compute)
        }
        "one rank: throttled clocks" => {
            alone(setting, Fault::Clocks { rank, factor: chance.between(10, 1.2, 2.0) }, Class::Clocks)
        }
        "one rank: slow data loader" => {
            alone(setting, Fault::Host { rank, share: chance.between(10, 0.2, 0.6) }, Class::Step)
        }
        "one rank: copies" => {
            alone(setting, Fault::Copies { rank, share: chance.between(10, 0.2, 0.8) }, Class::Step)
        }
        "a slightly slower GPU" => {
            setting.fault = Fault::Compute { ranks: vec![rank], factor: 1.04 };
            Some(one(Kind::SlowRank, Class::Compute, rank))
        }
        "healthy: short pauses" => {
            setting.fault = Fault::PausesOfAll {
                seconds: 0.05,
                every: chance.between(10, 20.0, 40.0) * f64::from(ranks) / 8.0,
            };
            None
        }
        "healthy: many buckets, few timed" => {
            many_buckets(setting)?;
            None
        }
        "an expert with more to do" => {
            setting.layout = chance.one_of(20, &[Layout::Experts, Layout::TensorData]);
            setting.fault = Fault::Busier { rank, factor: chance.between(10, 1.15, 1.4) };
            // The load is uneven from the start, because the expert itself has more to do.
            setting.from = 0.0;
            Some(one(Kind::SlowRank, Class::Compute, rank))
        }
        "slow data loader, many buckets" => {
            many_buckets(setting)?;
            setting.fault = Fault::Host { rank, share: chance.between(10, 0.3, 1.0) };
            slow(Class::Host)
        }
        "more work than the others" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp, Layout::Buckets]);
            setting.fault = Fault::Busier { rank, factor: chance.between(10, 1.25, 1.6) };
            if setting.layout == Layout::Buckets {
                many_buckets(setting)?;
            }
            slow(Class::Compute)
        }
        "slow compute" => {
            setting.fault = Fault::Compute { ranks: vec![rank], factor: chance.between(10, 1.2, 2.0) };
            slow(Class::Compute)
        }
        "slow compute, half of the ranks" => {
            let half: Vec<_> = (0..ranks).filter(|rank| rank % 8 < 4).collect();
            setting.fault = Fault::Compute { ranks: half.clone(), factor: chance.between(10, 1.2, 1.6) };
            Some(Expected {
                kind: Kind::SlowRank,
                classes: vec![Class::Compute],
                ranks: Named::Exactly(half),
            })
        }
        "throttled clocks" => {
            setting.fault = Fault::Clocks { rank, factor: chance.between(10, 1.2, 2.0) };
            slow(Class::Clocks)
        }
        "slow data loader" => {
            setting.fault = Fault::Host { rank, share: chance.between(10, 0.2, 0.6) };
            // Waiting for a neighbour stage is not observed. All ranks of a chain are late, so with two ranks
            // in a stage none can be named.
            match setting.layout {
                Layout::Pipeline if ranks < 16 => return Err(NotPlayed),
                Layout::Pipeline => {
                    let ranks = Named::Chain { rank, apart: ranks / 4 };
                    Some(Expected { kind: Kind::SlowRank, classes: vec![Class::Host], ranks })
                }
                _ => slow(Class::Host),
            }
        }
        "a neighbour on its GPU" => {
            setting.fault = Fault::Neighbour { rank, factor: chance.between(10, 1.3, 2.2) };
            slow(Class::Compute)
        }
        "copies" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            setting.fault = Fault::Copies { rank, share: chance.between(10, 0.2, 0.8) };
            slow(Class::Host)
        }
        "a thread that holds the GIL" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            setting.ahead = true;
            setting.fault = Fault::Host { rank, share: chance.between(10, 2.0, 8.0) };
            slow(Class::Host)
        }
        "stopped and continued" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            setting.fault = Fault::Stopped { rank, share: chance.between(10, 0.3, 0.5) };
            slow(Class::Host)
        }
        "checkpoints of one rank" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            let (seconds, every) = (chance.between(10, 1.0, 1.6), chance.between(11, 4.5, 5.5));
            setting.fault = Fault::Pauses { rank, seconds, every };
            let classes = vec![Class::Pauses, Class::Host];
            Some(Expected { kind: Kind::SlowRank, classes, ranks: Named::Exactly(vec![rank]) })
        }
        "slow compute that ends" => {
            setting.fault = Fault::Compute { ranks: vec![rank], factor: chance.between(10, 1.3, 2.0) };
            setting.to = setting.from + 35.0;
            setting.until = setting.to + 60.0;
            slow(Class::Compute)
        }
        "two faults at once" => {
            if ranks < 3 {
                return Err(NotPlayed);
            }
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            let other = (rank + 1) % ranks;
            let (seconds, every) = (chance.between(10, 1.2, 1.6), chance.between(11, 3.0, 4.0));
            setting.fault = Fault::Several(vec![
                Fault::Pauses { rank, seconds, every },
                Fault::Compute { ranks: vec![other], factor: 1.25 },
            ]);
            let pauses = Expected {
                kind: Kind::SlowRank,
                classes: vec![Class::Pauses, Class::Host],
                ranks: Named::Exactly(vec![rank]),
            };
            return Ok(vec![pauses, one(Kind::SlowRank, Class::Compute, other)]);
        }
        "pauses of one rank" => {
            let every = chance.between(11, 2.5, 4.5);
            setting.fault = Fault::Pauses { rank, seconds: chance.between(10, 0.2, 0.35) * every, every };
            // Frequent pauses are reported as a late host.
            let classes = vec![Class::Pauses, Class::Host];
            Some(Expected { kind: Kind::SlowRank, classes, ranks: Named::Exactly(vec![rank]) })
        }
        "two late ranks in turns" => {
            if ranks < 3 {
                return Err(NotPlayed);
            }
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            let other = (rank + ranks / 2) % ranks;
            setting.fault = Fault::Turns { ranks: [rank, other], share: chance.between(10, 0.3, 0.8) };
            Some(Expected {
                kind: Kind::SlowRank,
                // While one rank takes over from the other, the cause may be unknown.
                classes: vec![Class::Host, Class::Step],
                ranks: Named::Exactly(vec![rank, other]),
            })
        }
        "late in every seventh step" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Fsdp]);
            setting.fault = Fault::Seldom { rank, share: chance.between(10, 1.0, 2.0), every: 7 };
            let classes = vec![Class::Host, Class::Pauses];
            Some(Expected { kind: Kind::SlowRank, classes, ranks: Named::Exactly(vec![rank]) })
        }
        "late in the backward pass" => {
            setting.layout = chance.one_of(20, &[Layout::Ddp, Layout::Accumulated]);
            setting.fault = Fault::Backward { rank, share: chance.between(10, 0.2, 0.6) };
            slow(Class::Host)
        }
        "pauses of every rank" => {
            // Pauses of all ranks together take this share of the time.
            let (seconds, lost) =
                (chance.between(10, 0.3, 0.7).max(setting.step), chance.between(11, 0.15, 0.3));
            setting.fault =
                Fault::PausesOfAll { seconds, every: f64::from(ranks) * seconds * (1.0 - lost) / lost };
            Some(Expected {
                kind: Kind::Regression,
                classes: vec![Class::Pauses, Class::Step],
                ranks: Named::Anyone,
            })
        }
        "slow link" => {
            if ranks < 64 {
                return Err(NotPlayed);
            }
            setting.layout = Layout::TensorData;
            let host = rank / 8;
            setting.fault = Fault::Link { host, factor: chance.between(10, 1.6, 4.0) };
            Some(Expected {
                kind: Kind::SlowLink,
                classes: vec![Class::Link, Class::Group],
                ranks: Named::Among(rank),
            })
        }
        "slow network" => {
            setting.fault = Fault::Network { factor: chance.between(10, 1.6, 4.0) };
            Some(Expected {
                kind: Kind::SlowLink,
                classes: vec![Class::Link, Class::Group],
                ranks: Named::Anyone,
            })
        }
        "step regression" => {
            setting.fault = Fault::Everyone { factor: chance.between(10, 1.2, 1.6) };
            Some(Expected {
                kind: Kind::Regression,
                classes: vec![Class::Step, Class::Compute],
                ranks: Named::Anyone,
            })
        }
        "memory nearly full" => {
            setting.fault = Fault::Full { rank };
            Some(one(Kind::Device, Class::Memory, rank))
        }
        "device error" => {
            setting.fault = Fault::Error { rank, code: chance.one_of(10, &[48, 74, 79, 94]) };
            Some(one(Kind::Device, Class::Xid, rank))
        }
        "hang: on the CPU" => {
            stall(setting, Stall::OnCpu);
            hang(Class::NotEntered)
        }
        "hang: jittery network, on the CPU" => {
            stall(setting, Stall::OnCpu);
            setting.noise = Noise::JITTERY;
            hang(Class::NotEntered)
        }
        "hang: in the first steps" => {
            stall(setting, Stall::OnCpu);
            // All ranks complete the first of three steps.
            setting.from = 3.0 + setting.step * chance.between(10, 1.2, 1.8);
            hang(Class::NotEntered)
        }
        "hang: behind its own GPU" => {
            stall(setting, Stall::OnGpu);
            // An earlier collective that is not known to be done looks the same.
            let classes = vec![Class::NotEntered, Class::Partial];
            Some(Expected { kind: Kind::Hang, classes, ranks: Named::Exactly(vec![rank]) })
        }
        "hang: ended early" => {
            stall(setting, Stall::Ends);
            hang(Class::NotEntered)
        }
        "hang: stopped" => {
            stall(setting, Stall::Stops);
            hang(Class::Stopped)
        }
        "hang: dead" => {
            stall(setting, Stall::Dies);
            Some(one(Kind::Exited, Class::Dead, rank))
        }
        "hang: deadlock of two communicators" => {
            stall(setting, Stall::Order);
            Some(Expected { kind: Kind::Hang, classes: vec![Class::Deadlock], ranks: Named::Among(rank) })
        }
        "hang: another operation" => {
            stall(setting, Stall::Operation);
            hang(Class::Mismatch)
        }
        "hang: other bytes" => {
            stall(setting, Stall::Bytes);
            hang(Class::Mismatch)
        }
        "hang: one call out of step" => {
            stall(setting, Stall::Skip);
            hang(Class::Mismatch)
        }
        "hang: not launched" => {
            stall(setting, Stall::InCall);
            hang(Class::NotLaunched)
        }
        "hang: in the kernel" => {
            stall(setting, Stall::Kernel);
            Some(Expected { kind: Kind::Hang, classes: vec![Class::InKernel], ranks: Named::Among(rank) })
        }
        "hang: done on all but one" => {
            stall(setting, Stall::Partial);
            // While it is not known that the collective has ended on the other ranks, every waiting rank is
            // reported.
            let classes = vec![Class::Partial, Class::InKernel, Class::NotEntered];
            Some(Expected { kind: Kind::Hang, classes, ranks: Named::Among(rank) })
        }
        "hang: making a communicator" => {
            stall(setting, Stall::Init);
            hang(Class::Init)
        }
        "hang: ending a communicator" => {
            stall(setting, Stall::Finalize);
            hang(Class::Finalize)
        }
        "hang: not sent" => {
            stall(setting, Stall::Unsent);
            let last_stage = ranks - ranks / 4;
            let rank = rank % last_stage;
            setting.fault = Fault::Stall { rank, how: Stall::Unsent };
            Some(one(Kind::Hang, Class::Unmatched, rank))
        }
        _ => return Err(NotPlayed),
    };
    Ok(expected.into_iter().collect())
}
