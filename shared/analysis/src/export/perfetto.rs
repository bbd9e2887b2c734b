//! Perfetto's own format: `perfetto.protos.Trace`, by its public field numbers. Only the needed messages are
//! written, with varints and strings.

use std::io::{self, Write};

use serde_json::Value;

use super::{
    counter::Counter,
    slice::{Part, Slice},
    timeline::{Process, Timeline, Track},
};

/// All packets are written in one sequence.
const SEQUENCE: u64 = 1;

/// `TrackEvent.Type`
const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const COUNTER: u64 = 4;

/// First number of the counters in a process, above the numbers of all tracks.
const FIRST_COUNTER: u64 = 1 << 31;

pub fn write(timeline: &Timeline, out: &mut impl Write) -> io::Result<()> {
    for process in &timeline.processes {
        packet(out, |packet| packet.message(60, &process_descriptor(process)))?;
        for track in &process.tracks {
            packet(out, |packet| packet.message(60, &track_descriptor(process, track)))?;
            slices(track, track_uuid(process, track), out)?;
        }
        for (counter, number) in process.counters.iter().zip(FIRST_COUNTER..) {
            let track = uuid(process, number);
            packet(out, |packet| packet.message(60, &counter_descriptor(process, track, counter)))?;
            for &(at, value) in &counter.points {
                let fill = |event: &mut Message| {
                    event.number(9, COUNTER);
                    event.double(44, value);
                };
                event(out, at, fill, track)?;
            }
        }
    }
    Ok(())
}

/// Start and end of each slice, in order of time.
fn slices(track: &Track, uuid: u64, out: &mut impl Write) -> io::Result<()> {
    let mut open: Vec<u64> = Vec::new();
    let end = |out: &mut dyn Write, at: u64| event(out, at, |event| event.number(9, SLICE_END), uuid);
    for slice in &track.slices {
        while let Some(at) = open.pop_if(|at| *at <= slice.begin) {
            end(out, at)?;
        }
        event(out, slice.begin, |event| begin(event, slice), uuid)?;
        open.push(slice.end);
    }
    while let Some(at) = open.pop() {
        end(out, at)?;
    }
    Ok(())
}

fn begin(event: &mut Message, slice: &Slice) {
    event.number(9, SLICE_BEGIN);
    event.text(22, slice.category);
    event.text(23, &slice.name);
    for (name, value) in &slice.details {
        let mut annotation = Message::default();
        annotation.text(10, name);
        match value {
            Value::Number(number) => match number.as_u64() {
                Some(number) => annotation.number(3, number),
                None => annotation.double(5, number.as_f64().unwrap_or_default()),
            },
            Value::String(text) => annotation.text(6, text),
            other => annotation.text(6, &other.to_string()),
        }
        event.message(4, &annotation);
    }
    if let Some(flow) = slice.flow {
        event.fixed(if flow.part == Part::Last { 48 } else { 47 }, flow.id);
    }
}

fn event(out: &mut dyn Write, at: u64, fill: impl FnOnce(&mut Message), track: u64) -> io::Result<()> {
    let mut event = Message::default();
    fill(&mut event);
    event.number(11, track);
    packet(out, |packet| {
        packet.number(8, at);
        packet.message(11, &event);
    })
}

fn packet(out: &mut dyn Write, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
    let mut inner = Message::default();
    fill(&mut inner);
    inner.number(10, SEQUENCE);
    let mut outer = Message::default();
    outer.message(1, &inner);
    out.write_all(&outer.0)
}

/// Ids of a process and of each of its tracks: never 0.
fn uuid(process: &Process, number: u64) -> u64 {
    (u64::from(process.rank.process().0) + 1) << 32 | number
}

fn track_uuid(process: &Process, track: &Track) -> u64 {
    uuid(process, u64::from(track.number) + 1)
}

fn process_descriptor(process: &Process) -> Message {
    let mut inner = Message::default();
    inner.number(1, u64::from(process.rank.process().0) + 1);
    inner.number(3, process.order as u64);
    inner.text(6, &process.name());
    let mut descriptor = Message::default();
    descriptor.number(1, uuid(process, 0));
    descriptor.message(3, &inner);
    descriptor
}

fn track_descriptor(process: &Process, track: &Track) -> Message {
    let mut descriptor = Message::default();
    descriptor.number(1, track_uuid(process, track));
    descriptor.number(5, uuid(process, 0));
    descriptor.text(2, &track.name());
    descriptor
}

fn counter_descriptor(process: &Process, uuid_of_it: u64, counter: &Counter) -> Message {
    let mut inner = Message::default();
    inner.text(6, counter.unit);
    let mut descriptor = Message::default();
    descriptor.number(1, uuid_of_it);
    descriptor.number(5, uuid(process, 0));
    descriptor.text(2, counter.name);
    descriptor.message(8, &inner);
    descriptor
}

/// A protobuf message being written.
#[derive(Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn number(&mut self, field: u32, value: u64) {
        self.tag(field, 0);
        self.varint(value);
    }

    fn fixed(&mut self, field: u32, value: u64) {
        self.tag(field, 1);
        self.0.extend(value.to_le_bytes());
    }

    fn double(&mut self, field: u32, value: f64) {
        self.fixed(field, value.to_bits());
    }

    fn text(&mut self, field: u32, text: &str) {
        self.bytes(field, text.as_bytes());
    }

    fn message(&mut self, field: u32, inner: &Self) {
        self.bytes(field, &inner.0);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.tag(field, 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn tag(&mut self, field: u32, kind: u32) {
        self.varint(u64::from(field << 3 | kind));
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }
}
