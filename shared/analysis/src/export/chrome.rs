//! Chrome's JSON, which `chrome://tracing` and Perfetto read. Times in it are microseconds.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{
    slice::{Part, Slice},
    timeline::Timeline,
};

pub fn write(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut put = |out: &mut dyn Write, event: Value| -> io::Result<()> {
        let between: &[u8] = if std::mem::take(&mut first) { b"\n" } else { b",\n" };
        out.write_all(between)?;
        serde_json::to_writer(out, &event).map_err(Into::into)
    };
    for process in &timeline.processes {
        let pid = process.rank.process().0;
        let (name, order) = (process.name(), process.order);
        put(out, json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": name } }))?;
        put(
            out,
            json!({ "ph": "M", "pid": pid, "name": "process_sort_index", "args": { "sort_index": order } }),
        )?;
        for track in &process.tracks {
            let (tid, name) = (track.number, track.name());
            put(
                out,
                json!({ "ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": { "name": name } }),
            )?;
            put(
                out,
                json!({ "ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": { "sort_index": tid } }),
            )?;
            for slice in &track.slices {
                let Slice { begin, end, name, category, details, flow } = slice;
                let (ts, end) =
                    (microseconds(begin - timeline.begin.0), microseconds(end - timeline.begin.0));
                let dur = end - ts;
                put(
                    out,
                    json!({ "ph": "X", "pid": pid, "tid": tid, "ts": ts, "dur": dur, "name": name, "cat": category,
                            "args": details }),
                )?;
                let Some(flow) = flow else { continue };
                let letter = match flow.part {
                    Part::First => "s",
                    Part::Between => "t",
                    Part::Last => "f",
                };
                // Written as text, because JavaScript cannot represent a number of 64 bits.
                let id = format!("{:016x}", flow.id);
                put(
                    out,
                    json!({ "ph": letter, "bp": "e", "pid": pid, "tid": tid, "ts": ts, "id": id, "name": name,
                            "cat": "collective" }),
                )?;
            }
        }
        for counter in &process.counters {
            let name = format!("{}, {}", counter.name, counter.unit);
            for &(at, value) in &counter.points {
                let ts = microseconds(at.saturating_sub(timeline.begin.0));
                let args = json!({ counter.unit: value });
                put(out, json!({ "ph": "C", "pid": pid, "ts": ts, "name": name, "args": args }))?;
            }
        }
    }
    out.write_all(b"\n]}\n")
}

/// Rounds to a multiple of a power of two that is at most a nanosecond. The sum of a start and a length is
/// then exact, and a slice directly after another does not seem to overlap it.
pub fn microseconds(nanoseconds: u64) -> f64 {
    const PARTS: u64 = 1024;
    (u128::from(nanoseconds) * u128::from(PARTS) / 1000) as f64 / PARTS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adjacent_slice_begins_at_the_end_of_the_one_before() {
        let mut at = 0;
        for length in (1..20_000).step_by(7) {
            let (begin, end) = (microseconds(at), microseconds(at + length));
            assert!((begin * 1e3 - at as f64).abs() <= 1.0, "{begin} for {at} ns");
            assert_eq!((begin + (end - begin)).to_bits(), end.to_bits(), "at {at} ns");
            at += length;
        }
    }
}
