//! One sentence about a function that is abnormal.

use xpu_model::figure::{self, runs};
use xpu_wire::unit::Nanoseconds;

use super::{Abnormal, EXPECTED, Unit, Why};
use crate::capture::Per;

/// `rank 3: collate_fn (data.py:40) takes 31 % of its critical path, its peers 2.0 %: costs 29.1 ms a step`
pub(super) fn sentence(row: &Abnormal, per: Per) -> String {
    let numbers: Vec<_> = row.ranks.iter().map(|rank| u64::from(rank.0)).collect();
    let (noun, whose) = if numbers.len() == 1 { ("rank", "its") } else { ("ranks", "their") };
    let name = match &row.called_by {
        Some(caller) => format!("{}, called by {caller},", row.name),
        None => row.name.clone(),
    };
    let share = match (percent(row.least_share), percent(row.most_share)) {
        (least, most) if least == most => most,
        (least, most) => format!("{least} to {most}"),
    };
    let rates = row.rate.zip(row.peers_rate).zip(row.unit);
    let cost = format!("costs {} a {}", figure::time(Nanoseconds(row.cost_ns)), per.word());
    let takes = match row.why {
        Why::UnlikePeers => {
            let peers = percent(row.peers_share.unwrap_or(0.0));
            let at = rates.map(|((rate, peers), unit)| {
                format!(" ({} instead of {})", amount(rate, unit), amount(peers, unit))
            });
            format!(
                "takes {share} % of {whose} critical path, {whose} peers {peers} %{}",
                at.unwrap_or_default()
            )
        }
        Why::UnlikeExpectation => {
            format!("takes {share} % of {whose} critical path, {} % is expected", percent(EXPECTED))
        }
    };
    format!("{noun} {}: {name} {takes}: {cost}", runs(&numbers))
}

fn percent(share: f64) -> String {
    figure::two(share * 100.0)
}

/// A rate in words: a duration if the work is unknown.
pub(crate) fn amount(rate: f64, unit: Unit) -> String {
    match unit {
        Unit::Tflops => format!("{} TFLOPS", figure::three(rate)),
        Unit::GbytesPerS => format!("{} GB/s", figure::three(rate)),
        Unit::PerSecond => format!("{} each", figure::short_time(Nanoseconds((1e9 / rate.max(1e-9)) as u64))),
    }
}
