//! Chrome's JSON, which `chrome://tracing` and Perfetto read. Times in it are microseconds.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::timeline::{Part, Slice, Timeline};

pub(super) fn write(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    let mut first = true;
    let mut put = |out: &mut dyn Write, event: Value| -> io::Result<()> {
        let between: &[u8] = if std::mem::take(&mut first) { b"\n" } else { b",\n" };
        out.write_all(between)?;
        serde_json::to_writer(out, &event).map_err(Into::into)
    };
    for process in &timeline.processes {
        let pid = process.rank.0;
        let name = format!("rank {pid} on {}", process.host);
        put(out, json!({ "ph": "M", "pid": pid, "name": "process_name", "args": { "name": name } }))?;
        put(
            out,
            json!({ "ph": "M", "pid": pid, "name": "process_sort_index", "args": { "sort_index": pid } }),
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
                let since = |at: u64| (at - timeline.begin.0) as f64 / 1e3;
                let (ts, dur) = (since(*begin), (end - begin) as f64 / 1e3);
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
                // As text: a number of 64 bits does not survive JavaScript.
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
                let ts = at.saturating_sub(timeline.begin.0) as f64 / 1e3;
                let args = json!({ counter.unit: value });
                put(out, json!({ "ph": "C", "pid": pid, "ts": ts, "name": name, "args": args }))?;
            }
        }
    }
    out.write_all(b"\n]}\n")
}
