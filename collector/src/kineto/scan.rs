//! Statistics of a trace while it is read: its optimizer calls, and their times. They show whether the traces
//! of several ranks cover the same steps.

use memchr::memmem::{self, Finder};
use xpu_wire::{frame::KinetoEnd, unit::Moment};

/// The begin of an optimizer call on the host. The GPU's tracks have the same name in another category.
const STEP: &[u8] = b"\"cat\": \"user_annotation\", \"name\": \"Optimizer.step#";
/// The origin of the other times. Times of older traces count from the epoch.
const BASE: &[u8] = b"\"baseTimeNanoseconds\":";
const TIME: &[u8] = b"\"ts\":";

/// The time of a call follows its name within this many bytes.
const REACH: usize = 512;

#[derive(Debug)]
pub(super) struct Scan {
    step: Finder<'static>,
    base: Option<u64>,
    /// The end of the data so far, in which a match may begin.
    rest: Vec<u8>,
    bytes: u64,
    steps: u32,
    /// Times of the first and last call, in nanoseconds after the base.
    first: Option<u64>,
    last: Option<u64>,
}

impl Default for Scan {
    fn default() -> Self {
        Self {
            step: Finder::new(STEP),
            base: None,
            rest: Vec::new(),
            bytes: 0,
            steps: 0,
            first: None,
            last: None,
        }
    }
}

impl Scan {
    pub(super) fn take(&mut self, bytes: &[u8]) {
        self.bytes += bytes.len() as u64;
        self.rest.extend_from_slice(bytes);
        let until = self.rest.len().saturating_sub(REACH);
        self.look(until);
        self.rest.drain(..until);
    }

    /// Counts matches that begin before `until`. The data of these is complete.
    fn look(&mut self, until: usize) {
        let text = std::mem::take(&mut self.rest);
        if self.base.is_none() {
            self.base = memmem::find(&text, BASE).filter(|&at| at < until).and_then(|at| {
                let digits = text[at + BASE.len()..].trim_ascii_start();
                integer(digits).map(|(value, _)| value)
            });
        }
        let mut from = 0;
        while let Some(at) = self.step.find(&text[from..]).map(|at| at + from).filter(|&at| at < until) {
            self.steps = self.steps.saturating_add(1);
            from = at + STEP.len();
            if let Some(time) = time_after(&text[from..text.len().min(at + REACH)]) {
                self.first = Some(self.first.map_or(time, |first| first.min(time)));
                self.last = Some(self.last.map_or(time, |last| last.max(time)));
            }
        }
        self.rest = text;
    }

    pub(super) fn finish(mut self) -> KinetoEnd {
        self.look(self.rest.len());
        let base = self.base.unwrap_or(0);
        let moment = |time: Option<u64>| time.map(|time| Moment(base.saturating_add(time)));
        KinetoEnd {
            bytes: self.bytes,
            optimizer_steps: self.steps,
            first: moment(self.first),
            last: moment(self.last),
            wrong: None,
        }
    }
}

/// The time in nanoseconds, from `"ts": 4619144442272.980` in microseconds.
fn time_after(text: &[u8]) -> Option<u64> {
    let at = memmem::find(text, TIME)? + TIME.len();
    let (whole, rest) = integer(text[at..].trim_ascii_start())?;
    let places =
        rest.strip_prefix(b".").unwrap_or_default().iter().take_while(|digit| digit.is_ascii_digit());
    let part =
        (0..3).zip(places.chain([&b'0'; 3])).fold(0, |sum, (_, digit)| sum * 10 + u64::from(digit - b'0'));
    whole.checked_mul(1000)?.checked_add(part)
}

fn integer(text: &[u8]) -> Option<(u64, &[u8])> {
    let length = text.iter().take_while(|digit| digit.is_ascii_digit()).count();
    let value = str::from_utf8(&text[..length]).ok()?.parse().ok()?;
    Some((value, &text[length..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A trace that PyTorch 2.11 wrote.
    const TRACE: &str = r#"{
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
  {
    "ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 13798, "tid": 13798,
    "ts": 4619144445334.317, "dur": 216.875
  },
  {
    "ph": "X", "cat": "gpu_user_annotation", "name": "Optimizer.step#SGD.step", "pid": 0, "tid": 7,
    "ts": 4619144445335.317, "dur": 216.875
  },
  {
    "ph": "X", "cat": "user_annotation", "name": "Optimizer.zero_grad#SGD.zero_grad", "pid": 13798, "tid": 13798,
    "ts": 4619144497500.1, "dur": 207.817
  },
  {
    "ph": "X", "cat": "user_annotation", "name": "Optimizer.step#SGD.step", "pid": 13798, "tid": 13798,
    "ts": 4619144497573.5, "dur": 207.817
  }],
  "traceName": "/tmp/a.json"
}"#;

    #[test]
    fn the_scan_does_not_depend_on_the_pieces() {
        for size in [1, 7, 511, 512, 513, TRACE.len()] {
            let mut scan = Scan::default();
            TRACE.as_bytes().chunks(size).for_each(|piece| scan.take(piece));
            let end = scan.finish();
            assert_eq!((end.bytes, end.optimizer_steps), (TRACE.len() as u64, 2), "{size}");
            assert_eq!(end.first, Some(Moment(1_795_476_170_445_334_317)), "{size}");
            assert_eq!(end.last, Some(Moment(1_795_476_170_497_573_500)), "{size}");
        }
    }

    #[test]
    fn a_file_that_is_no_trace_has_no_events() {
        for text in ["", "{}", "\"cat\": \"user_annotation\", \"name\": \"Optimizer.step#"] {
            let mut scan = Scan::default();
            scan.take(text.as_bytes());
            assert_eq!(scan.finish().first, None);
        }
    }
}
