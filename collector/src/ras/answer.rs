//! RAS's JSON document, as NCCL's `client_support.cc` writes it.

use serde::{Deserialize, Deserializer, de::Error as _};
use xpu_wire::{
    frame::{RasCommunicator, RasCounts, RasMissing, RasRank, RasReport},
    id::{CommunicatorId, Pid},
    text,
    unit::Nanoseconds,
};

/// The fields that are used. Fields of newer versions are ignored.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    #[serde(default)]
    nccl_version: String,
    communicators: Vec<Communicator>,
    #[serde(default)]
    ras: Collection,
}

#[derive(Debug, Deserialize)]
struct Communicator {
    #[serde(deserialize_with = "hash")]
    hash: u64,
    size: u32,
    ranks: Vec<Member>,
    #[serde(default)]
    missing_ranks: Vec<Missing>,
}

#[derive(Debug, Deserialize)]
struct Member {
    rank: u32,
    /// The process id; -1 if it is unknown.
    pid: i64,
    #[serde(default)]
    status: Status,
    #[serde(default)]
    collective_counts: Counts,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    init_state: i32,
    async_error: i32,
    finalize_called: bool,
    destroy_flag: bool,
    abort_flag: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct Counts {
    broadcast: u64,
    reduce: u64,
    all_gather: u64,
    reduce_scatter: u64,
    all_reduce: u64,
}

#[derive(Debug, Deserialize)]
struct Missing {
    rank: u32,
    pid: i64,
    #[serde(default)]
    status: Reach,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Reach {
    unresponsive: bool,
    considered_dead: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Collection {
    collection_time_sec: f64,
    timeouts_count: u32,
}

/// A hash in the form `0x1b2c`.
fn hash<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    let text = String::deserialize(from)?;
    let digits = text.strip_prefix("0x").unwrap_or(&text);
    u64::from_str_radix(digits, 16).map_err(|error| D::Error::custom(format!("hash {digits:?}: {error}")))
}

fn process(pid: i64) -> Option<Pid> {
    u32::try_from(pid).ok().filter(|&pid| pid > 0).map(Pid)
}

impl Answer {
    /// Parses the answer. Adds the comma that NCCL 2.28.7 to 2.28.9 omit before a missing rank's status.
    /// Returns the answer and its bytes, with that comma.
    pub(super) fn parse(raw: Vec<u8>) -> Result<(Self, Vec<u8>), serde_json::Error> {
        let (parsed, raw) = match serde_json::from_slice(&raw) {
            Ok(parsed) => (parsed, raw),
            Err(error) => {
                let mended = with_commas(&raw);
                (serde_json::from_slice(&mended).map_err(|_again| error)?, mended)
            }
        };
        let parsed: Self = parsed;
        let ranks = parsed.communicators.iter().map(|one| one.ranks.len() + one.missing_ranks.len());
        if ranks.sum::<usize>() > RasReport::RANKS {
            return Err(serde_json::Error::custom(format!("more than {} ranks", RasReport::RANKS)));
        }
        Ok((parsed, raw))
    }

    /// Whether the answer is about a job with one of these processes. An answer without ranks is about no
    /// job.
    pub(super) fn is_of(&self, pids: &[Pid]) -> bool {
        let there = self.communicators.iter().flat_map(|one| {
            let missing = one.missing_ranks.iter().map(|rank| rank.pid);
            one.ranks.iter().map(|rank| rank.pid).chain(missing)
        });
        let mut there = there.map(process).peekable();
        there.peek().is_none() || there.flatten().any(|pid| pids.contains(&pid))
    }

    /// Completes `report`, which has the time and the address of the question.
    pub(super) fn into_report(self, report: RasReport) -> RasReport {
        let took = self.ras.collection_time_sec.clamp(0.0, 1e6);
        RasReport {
            nccl: text::clean(&self.nccl_version).chars().take(64).collect(),
            communicators: self.communicators.into_iter().map(Communicator::into_frame).collect(),
            took: Nanoseconds((took * 1e9) as u64),
            timeouts: self.ras.timeouts_count,
            ..report
        }
    }
}

impl Communicator {
    fn into_frame(self) -> RasCommunicator {
        let missing = |rank: Missing| RasMissing {
            member: rank.rank,
            pid: process(rank.pid),
            unresponsive: rank.status.unresponsive,
            considered_dead: rank.status.considered_dead,
        };
        RasCommunicator {
            id: CommunicatorId(self.hash),
            size: self.size,
            ranks: self.ranks.into_iter().map(Member::into_frame).collect(),
            missing: self.missing_ranks.into_iter().map(missing).collect(),
        }
    }
}

impl Member {
    fn into_frame(self) -> RasRank {
        let Counts { broadcast, reduce, all_gather, reduce_scatter, all_reduce } = self.collective_counts;
        RasRank {
            member: self.rank,
            pid: process(self.pid),
            init_state: self.status.init_state,
            async_error: self.status.async_error,
            finalized: self.status.finalize_called,
            destroyed: self.status.destroy_flag,
            aborted: self.status.abort_flag,
            launched: RasCounts { broadcast, reduce, all_gather, reduce_scatter, all_reduce },
        }
    }
}

/// Each `"nvml_dev": 3` that only white space separates from `"status"` gets its comma.
fn with_commas(raw: &[u8]) -> Vec<u8> {
    const NEXT: &[u8] = b"\"status\"";
    let mut mended = Vec::with_capacity(raw.len() + 64);
    let mut from = 0;
    for at in memchr::memmem::find_iter(raw, NEXT) {
        let before = raw[from..at].trim_ascii_end();
        mended.extend_from_slice(before);
        if before.last().is_some_and(u8::is_ascii_digit) {
            mended.push(b',');
        }
        from += before.len();
    }
    mended.extend_from_slice(&raw[from..]);
    mended
}

#[cfg(test)]
pub(super) mod tests;
