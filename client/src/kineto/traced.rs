//! The period that a trace covers, read while the trace arrives: Kineto may end a trace before the requested
//! period is over.

use std::{
    io::{self, Write},
    time::Duration,
};

use flate2::write::GzDecoder;
use memchr::memmem;

/// The events that name the begin and the end of the period. Each has its time within this many bytes.
const BEGIN: &[u8] = b"\"cat\": \"Trace\"";
const END: &[u8] = b"\"name\": \"Record Window End\"";
const TIME: &[u8] = b"\"ts\":";
const REACH: usize = 256;

/// Reads the parts of a compressed trace.
#[derive(Debug)]
pub(super) struct Traced(GzDecoder<Period>);

impl Default for Traced {
    fn default() -> Self {
        Self(GzDecoder::new(Period::default()))
    }
}

impl Traced {
    pub(super) fn take(&mut self, part: &[u8]) -> io::Result<()> {
        self.0.write_all(part)
    }

    /// The period of the complete trace. `None` if the trace does not name it.
    pub(super) fn finish(self) -> Option<Duration> {
        let mut period = self.0.finish().ok()?;
        period.look(period.rest.len());
        // Times are microseconds.
        let took = (period.end? - period.begin?) / 1e6;
        Duration::try_from_secs_f64(took).ok()
    }
}

#[derive(Debug, Default)]
struct Period {
    /// The end of the data so far, in which an event may begin.
    rest: Vec<u8>,
    begin: Option<f64>,
    end: Option<f64>,
}

impl Period {
    /// Finds events that begin before `until`. Their data is complete.
    fn look(&mut self, until: usize) {
        let find = |name: &[u8]| {
            let at = memmem::find(&self.rest, name).filter(|&at| at < until)?;
            time_after(&self.rest[at..self.rest.len().min(at + REACH)])
        };
        let (begin, end) = (find(BEGIN), find(END));
        (self.begin, self.end) = (self.begin.or(begin), end.or(self.end));
    }
}

impl Write for Period {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.rest.extend_from_slice(bytes);
        let until = self.rest.len().saturating_sub(REACH);
        self.look(until);
        self.rest.drain(..until);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn time_after(text: &[u8]) -> Option<f64> {
    let text = text[memmem::find(text, TIME)? + TIME.len()..].trim_ascii_start();
    let length = text.iter().take_while(|letter| letter.is_ascii_digit() || **letter == b'.').count();
    str::from_utf8(&text[..length]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn traced(text: &str, size: usize) -> Option<Duration> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        packer.write_all(text.as_bytes()).unwrap();
        let mut traced = Traced::default();
        packer.finish().unwrap().chunks(size).for_each(|part| traced.take(part).unwrap());
        traced.finish()
    }

    /// As PyTorch 2.11 writes it.
    fn trace() -> String {
        let event = "  {\n    \"ph\": \"i\", \"name\": \"other\", \"ts\": 5000357931900.000\n  },\n";
        format!(
            "{{\n\"traceEvents\": [\n{}  {{\n    \"ph\": \"X\", \"cat\": \"Trace\", \"ts\": 5000357931802.381, \"dur\": 17632.679,\n    \
             \"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\",\n    \"name\": \"PyTorch Profiler (0)\"\n  }},\n{}  {{\n    \
             \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\",\n    \"pid\": \"\", \"tid\": \"\", \"ts\": 5000357947590.651\n  }}\n  ],\n  \
             \"traceName\": \"/tmp/a.json\"\n}}",
            event.repeat(2000),
            event.repeat(2000),
        )
    }

    #[test]
    fn the_period_of_a_trace_does_not_depend_on_its_parts() {
        for size in [1, 7, 100, 1 << 20] {
            let took = traced(&trace(), size).unwrap();
            assert!(took.as_nanos().abs_diff(15_788_270) < 2000, "{size}: {took:?}");
        }
    }

    #[test]
    fn a_trace_that_names_no_period_has_none() {
        for text in ["", "{}", "\"cat\": \"Trace\"", &trace().replace("Window End", "End")] {
            assert_eq!(traced(text, 100), None, "{text}");
        }
        let mut damaged = Traced::default();
        assert!(damaged.take(b"this is not compressed").is_err());
    }
}
