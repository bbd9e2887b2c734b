//! A trace by PyTorch's profiler (Kineto) as tracks of a rank: operators and functions by thread, kernels by
//! stream, and the collectives that belong together.

use std::{
    collections::{BTreeMap, HashMap},
    io::Read,
};

use serde::Deserialize;
use serde_json::{Map, Value};

use super::slice::{Flow, Part, Slice};

/// Number of events kept per rank: enough for some steps with all functions.
const EVENTS: usize = 4_000_000;

/// One rank's trace.
#[derive(Debug, Default)]
pub struct Profile {
    /// Operations by name, with times in nanoseconds since 1970 by the clock of the rank's host.
    pub(super) threads: BTreeMap<String, Vec<Slice>>,
    pub(super) streams: BTreeMap<u32, Vec<Slice>>,
    /// Number of collectives of each name, if those of two ranks can only be matched by their order.
    pub(super) ordered: BTreeMap<String, u64>,
    /// Number of events that were not kept.
    pub left_out: u64,
}

#[derive(Deserialize)]
struct File {
    #[serde(default, rename = "baseTimeNanoseconds")]
    base: u64,
    #[serde(rename = "traceEvents")]
    events: Vec<Event>,
}

#[derive(Deserialize)]
struct Event {
    #[serde(default)]
    ph: String,
    #[serde(default)]
    cat: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    tid: Value,
    /// Microseconds since the start of the file.
    #[serde(default)]
    ts: f64,
    #[serde(default)]
    dur: f64,
    #[serde(default)]
    args: Args,
}

#[derive(Default, Deserialize)]
struct Args {
    stream: Option<i64>,
    correlation: Option<u64>,
    #[serde(rename = "Collective name")]
    collective: Option<String>,
    #[serde(rename = "Process Group Name")]
    group: Option<Value>,
    #[serde(rename = "Seq")]
    sequence: Option<i64>,
    #[serde(rename = "In msg nelems")]
    elements: Option<u64>,
    #[serde(rename = "Input Dims")]
    shapes: Option<Value>,
}

/// Kinds of events that are shown; the others are the profiler's own.
fn place(event: &Event) -> Option<Place> {
    match event.cat.as_str() {
        "cpu_op" | "user_annotation" | "python_function" | "cuda_runtime" | "cuda_driver" => {
            Some(Place::Thread)
        }
        "kernel" | "gpu_memcpy" | "gpu_memset" => Some(Place::Stream),
        _ => None,
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Thread,
    Stream,
}

/// Names of categories, which live as long as the program.
fn category(name: &str) -> &'static str {
    match name {
        "user_annotation" => "user_annotation",
        "python_function" => "python_function",
        "cuda_runtime" | "cuda_driver" => "cuda_runtime",
        "kernel" => "kernel",
        "gpu_memcpy" => "gpu_memcpy",
        "gpu_memset" => "gpu_memset",
        _ => "cpu_op",
    }
}

impl Profile {
    /// Reads an uncompressed trace.
    ///
    /// # Errors
    /// Fails if the input is not a trace.
    pub fn read(from: impl Read) -> serde_json::Result<Self> {
        let File { base, events } = serde_json::from_reader(from)?;
        let mut new = Self::default();
        let begin = |event: &Event| base.saturating_add((event.ts.max(0.0) * 1e3) as u64);
        let mut events: Vec<_> =
            events.into_iter().filter(|event| event.ph == "X" && place(event).is_some()).collect();
        events.sort_by_key(&begin);
        new.left_out = events.len().saturating_sub(EVENTS) as u64;
        events.truncate(EVENTS);
        // On a GPU, kernels show when a collective ran; otherwise operators do, or PyTorch's marks around
        // them.
        let has_operators = events.iter().any(|event| event.args.collective.is_some());
        let on_gpu =
            events.iter().any(|event| place(event) == Some(Place::Stream) && event.args.collective.is_some());
        let mut orders: HashMap<String, u64> = HashMap::new();
        for event in events {
            let from = begin(&event);
            let place = place(&event).unwrap_or(Place::Thread);
            let is_known = if has_operators {
                event.args.collective.is_some() && on_gpu == (place == Place::Stream)
            } else {
                event.cat == "user_annotation" && is_backend(&event.name)
            };
            let flow = is_known.then(|| new.flow(&event, &mut orders));
            let slice = Slice {
                begin: from,
                end: from.saturating_add((event.dur.max(0.0) * 1e3) as u64),
                category: category(&event.cat),
                details: details(&event.args),
                flow: flow.map(|id| Flow { id, part: Part::Between }),
                name: xpu_wire::text::clean(&event.name).into_owned(),
            };
            match (place, event.args.stream) {
                (Place::Stream, Some(stream)) => {
                    new.streams.entry(u32::try_from(stream).unwrap_or(u32::MAX)).or_default().push(slice);
                }
                _ => new.threads.entry(thread(&event.tid)).or_default().push(slice),
            }
        }
        Ok(new)
    }

    /// An id of a collective, equal on all its ranks.
    fn flow(&mut self, event: &Event, orders: &mut HashMap<String, u64>) -> u64 {
        let group = event.args.group.as_ref().map(ToString::to_string).unwrap_or_default();
        let name = event.args.collective.clone().unwrap_or_else(|| event.name.clone());
        let what = format!("{group} {name}");
        let sequence = event.args.sequence.and_then(|sequence| u64::try_from(sequence).ok());
        let number = sequence.unwrap_or_else(|| {
            let order = orders.entry(what.clone()).or_default();
            *order += 1;
            self.ordered.insert(what.clone(), *order);
            *order
        });
        hash(&what) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    /// Drops the arrows: order alone cannot match ranks with different numbers of collectives.
    pub(super) fn unconnected(&mut self) {
        let all = self.threads.values_mut().chain(self.streams.values_mut());
        all.flatten().for_each(|slice| slice.flow = None);
    }
}

/// `gloo:all_reduce`: a collective, by its backend.
fn is_backend(name: &str) -> bool {
    ["gloo:", "nccl:", "mpi:", "ucc:"].iter().any(|backend| name.starts_with(backend))
}

/// FNV-1a, equal on all machines.
fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn thread(tid: &Value) -> String {
    let text = tid.as_str().map_or_else(|| tid.to_string(), ToOwned::to_owned);
    xpu_wire::text::clean(&text).into_owned()
}

fn details(args: &Args) -> Map<String, Value> {
    let mut details = Map::new();
    let mut put = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            details.insert(name.to_owned(), value);
        }
    };
    put("correlation", args.correlation.map(Into::into));
    put("collective", args.collective.clone().map(Into::into));
    put("group", args.group.clone());
    put("sequence", args.sequence.map(Into::into));
    put("elements", args.elements.map(Into::into));
    put("input_dims", args.shapes.as_ref().map(|shapes| shapes.to_string().into()));
    details
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(events: &str) -> Profile {
        let text = format!(
            "{{\"baseTimeNanoseconds\": 1000000, \"traceEvents\": [{events}], \"traceName\": \"t\"}}"
        );
        Profile::read(text.as_bytes()).unwrap()
    }

    const OPERATOR: &str = r#"{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 7, "tid": 7, "ts": 2.5, "dur": 1.25,
        "args": {"External id": 3, "Input Dims": [[8, 4], []]}}"#;

    fn reduces(sequence: &str) -> String {
        format!(
            r#"{{"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce", "pid": 0, "tid": 20, "ts": 5, "dur": 2,
            "args": {{"stream": 20, "Collective name": "allreduce", "Process Group Name": "0" {sequence}}}}}"#
        )
    }

    #[test]
    fn operators_are_on_their_thread_and_kernels_on_their_stream_at_the_hosts_time() {
        let profile = profile(&format!(
            "{OPERATOR}, {}, {{\"ph\": \"M\", \"name\": \"x\"}}, {{\"ph\": \"X\", \"cat\": \"overhead\", \"name\": \"o\", \"ts\": 1, \"dur\": 1}}",
            reduces("")
        ));
        let slice = &profile.threads["7"][0];
        assert_eq!((slice.begin, slice.end, slice.name.as_str()), (1_002_500, 1_003_750, "aten::mm"));
        assert_eq!(slice.details["input_dims"], "[[8,4],[]]");
        assert_eq!((profile.threads.len(), profile.streams[&20].len()), (1, 1));
    }

    #[test]
    fn collectives_of_one_number_belong_together_on_all_ranks() {
        let id = |events: &str| profile(events).streams[&20][0].flow.map(|flow| flow.id);
        let [one, again, other] =
            [", \"Seq\": 4", ", \"Seq\": 4", ", \"Seq\": 5"].map(|seq| id(&reduces(seq)));
        assert!(one.is_some() && one == again && one != other);
        let by_order = profile(&format!("{}, {}", reduces(""), reduces("")));
        assert_eq!(by_order.ordered.values().copied().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn without_arguments_the_marks_around_collectives_decide() {
        let mark = |name: &str| {
            format!(
                r#"{{"ph": "X", "cat": "user_annotation", "name": "{name}", "tid": 9, "ts": 5, "dur": 2}}"#
            )
        };
        let all =
            format!("{}, {}, {}", mark("gloo:all_reduce"), mark("gloo:all_reduce"), mark("Optimizer.step"));
        let profile = profile(&all);
        let flows: Vec<_> = profile.threads["9"].iter().map(|slice| slice.flow.map(|flow| flow.id)).collect();
        assert!(flows[0].is_some() && flows[1].is_some() && flows[0] != flows[1] && flows[2].is_none());
        assert_eq!(profile.ordered.values().copied().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_file_that_is_no_trace_is_refused() {
        for text in ["", "{}", "[]", "{\"traceEvents\": 7}", "{\"traceEvents\": [7]}"] {
            assert!(Profile::read(text.as_bytes()).is_err(), "{text}");
        }
    }
}
