//! Invalid input from other processes. All are counted, but only a limited rate is logged,
//! so that a flood cannot fill the disk.

use std::{collections::BTreeMap, time::Duration};

use xpu_wire::{text, unit::Moment};

/// At most one line of each kind in this time.
const QUIET: Duration = Duration::from_secs(10);

/// The number of errors, by subject.
#[derive(Debug, Default)]
pub(crate) struct InputErrors {
    kinds: BTreeMap<&'static str, Kind>,
}

#[derive(Debug, Default)]
struct Kind {
    count: u64,
    logged: u64,
    last_line: Option<Moment>,
}

impl InputErrors {
    pub(crate) fn raise(&mut self, about: &'static str, detail: &dyn std::fmt::Display, now: Moment) {
        if let Some(new) = self.count(about, now) {
            tracing::warn!("{}", line(about, &detail.to_string(), new, self.total(about)));
        }
    }

    /// The number of errors that the next line represents, if a line is due.
    fn count(&mut self, about: &'static str, now: Moment) -> Option<u64> {
        let kind = self.kinds.entry(about).or_default();
        kind.count += 1;
        if kind.last_line.is_some_and(|last| now.since(last) < QUIET) {
            return None;
        }
        let new = kind.count - kind.logged;
        (kind.logged, kind.last_line) = (kind.count, Some(now));
        Some(new)
    }

    pub(crate) fn total(&self, about: &'static str) -> u64 {
        self.kinds.get(about).map_or(0, |kind| kind.count)
    }
}

/// A line of the log. Foreign text stays on one line, whatever it contains.
fn line(about: &str, detail: &str, new: u64, total: u64) -> String {
    format!("{about}: {} ({new} new, {total} in all)", text::clean(detail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_messages_contain_no_newlines_and_no_control_characters() {
        let said = line("a frame", "bad\n2026-01-01 ERROR all is lost\r\u{1b}[2J\u{2028}", 1, 2);
        assert!(said.starts_with("a frame: bad") && said.ends_with("(1 new, 2 in all)"), "{said:?}");
        assert!(!said.contains(['\n', '\r', '\u{1b}', '\u{2028}']), "{said:?}");
    }

    #[test]
    fn a_flood_of_messages_is_one_line_with_their_number() {
        let mut complaints = InputErrors::default();
        let at = |seconds: u64| Moment(seconds * 1_000_000_000);
        assert_eq!(complaints.count("garbage", at(100)), Some(1));
        for _ in 0..1000 {
            assert_eq!(complaints.count("garbage", at(105)), None);
        }
        assert_eq!(complaints.count("other", at(105)), Some(1));
        assert_eq!(complaints.count("garbage", at(111)), Some(1001));
        assert_eq!(complaints.total("garbage"), 1002);
    }
}
