//! Parsers for the values of options. An invalid value is refused with an example.

use std::{collections::BTreeSet, time::Duration};

use xpu_model::{duration::duration, finding::Kind};
use xpu_wire::{
    endpoint::BasePort,
    frame::SampleOrder,
    id::{JobName, Rank},
};

/// Ranks named one by one or as ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankList(pub Vec<Rank>);

/// Kinds of findings; empty for any kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindList(pub Vec<Kind>);

pub(super) fn job_name(text: &str) -> Result<JobName, String> {
    let cleaned = JobName::cleaned(text);
    if cleaned.as_str() == text {
        Ok(cleaned)
    } else {
        Err(format!("write letters, digits, `.`, `_`, `:` and `-` only, for example {cleaned}"))
    }
}

pub(super) fn rank(text: &str) -> Result<Rank, String> {
    text.parse().map_err(|_no_rank| {
        "write a rank's number, as the rank column of `xpu-top status` shows it: 6, or 0.1 for a GPU of several"
            .to_owned()
    })
}

pub(super) fn ranks(text: &str) -> Result<RankList, String> {
    const MOST: usize = 1 << 20;
    let wrong = || "write ranks like 0-7,16".to_owned();
    let mut all = BTreeSet::new();
    for item in text.split(',') {
        if let Ok(one) = item.trim().parse::<Rank>() {
            all.insert(one);
            continue;
        }
        let Some((from, to)) = item.split_once('-') else { return Err(wrong()) };
        let number = |text: &str| text.trim().parse::<u32>().ok();
        let (Some(from), Some(to)) = (number(from), number(to)) else { return Err(wrong()) };
        if from > to || (to - from) as usize >= MOST - all.len() {
            return Err(wrong());
        }
        all.extend((from..=to).map(Rank));
    }
    Ok(RankList(all.into_iter().collect()))
}

/// 0 means the default.
pub(super) fn sample_rate(text: &str) -> Result<u32, String> {
    let rate = text.parse().ok().filter(|rate| (0..=SampleOrder::RATE).contains(rate));
    rate.ok_or_else(|| format!("write readings per second, {} at most", SampleOrder::RATE))
}

pub(super) fn kinds(text: &str) -> Result<KindList, String> {
    let all = text.split(',').filter(|word| !word.is_empty()).map(|word| {
        Kind::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| format!("unknown finding {word}: write {}", Kind::ALL.map(Kind::word).join(", ")))
    });
    all.collect::<Result<_, _>>().map(KindList)
}

pub(super) fn length(text: &str) -> Result<Duration, String> {
    let length = duration(text).filter(|length| !length.is_zero());
    length.ok_or_else(|| "write a time like 90s, 10m or 1h30m".to_owned())
}

/// A duration that may be shorter than a second.
pub(super) fn trace_length(text: &str) -> Result<Duration, String> {
    let length = duration(text).filter(|length| !length.is_zero() && *length <= LONGEST_TRACE);
    length.ok_or_else(|| "write a time like 500ms, 2s or 1m, an hour at most".to_owned())
}

/// The longest trace; a longer one could not be read.
const LONGEST_TRACE: Duration = Duration::from_hours(1);

pub(super) fn base_port(text: &str) -> Result<BasePort, String> {
    text.parse().ok().and_then(BasePort::new).ok_or_else(|| "write a port from 1 to 65533".to_owned())
}
