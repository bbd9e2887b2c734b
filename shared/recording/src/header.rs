//! A recording's header, as lines of text that `head` shows.

use std::fmt::Write as _;

use xpu_wire::{
    text::{clean, is_steering},
    unit::Moment,
};

use super::{MAGIC, VERSION, word};

/// Bytes before the text: magic, version, two zeros, the text's length and its checksum.
pub(super) const FIXED: usize = 20;

/// Longest text: enough for a few thousand hosts.
pub(super) const LONGEST: usize = 1 << 20;

/// What was recorded, when and by whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The requested job; empty for all.
    pub job: String,
    /// Hosts as the user named them.
    pub hosts: Vec<String>,
    /// When it began, by the recorder's clock.
    pub made: Moment,
    /// Version of the program that wrote it.
    pub by: String,
}

impl Header {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = format!("job {}\nmade {}\nby {}\n", line(&self.job), self.made.0, line(&self.by));
        for host in &self.hosts {
            if text.len() + host.len() + 16 > LONGEST {
                break;
            }
            let _ = writeln!(text, "host {}", line(host));
        }
        let mut bytes = Vec::with_capacity(FIXED + text.len());
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0, 0]);
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(crc32fast::hash(text.as_bytes()).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes
    }

    /// The text's length from the fixed part, if it is plausible.
    pub(super) fn stated(fixed: &[u8; FIXED]) -> Option<usize> {
        Some(word(fixed, 12) as usize).filter(|&length| length <= LONGEST)
    }

    /// `None` if the checksum does not match the text. Unknown lines are ignored, because they come from a
    /// newer program.
    pub(super) fn decode(fixed: &[u8; FIXED], text: &[u8]) -> Option<Self> {
        if crc32fast::hash(text) != word(fixed, 16) {
            return None;
        }
        let mut header = Self::default();
        for line in std::str::from_utf8(text).ok()?.lines() {
            let line = clean(line);
            let (name, value) = line.split_once(' ').unwrap_or((&line, ""));
            match name {
                "job" => value.clone_into(&mut header.job),
                "host" => header.hosts.push(value.to_owned()),
                "made" => header.made = Moment(value.parse().ok()?),
                "by" => value.clone_into(&mut header.by),
                _ => {}
            }
        }
        Some(header)
    }
}

/// A value without line ends.
fn line(value: &str) -> String {
    value.chars().map(|c| if is_steering(c) { '?' } else { c }).collect()
}
