//! Frames to bytes and back. `docs/wire-format.md` describes the format for other languages.
//!
//! A frame is a header of 12 bytes (magic, version, kind, length) and a payload in bincode's standard
//! configuration. bincode is no longer maintained (3.0.0 is only a notice), so it is pinned, kept inside this
//! file, and always given a limit: without a limit, a hostile length makes it allocate. If it must be
//! replaced, postcard takes its place, under a new version number.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    frame::{Body, Frame},
    id::HostName,
    text::Line,
    unit::Moment,
};

/// First bytes of every frame.
pub const MAGIC: [u8; 4] = *b"xput";

/// Version of all payload layouts together.
pub const VERSION: u16 = 1;

/// Bytes of the header: magic, version, kind, length of the payload, little-endian.
pub const HEADER: usize = 12;

/// Largest frame that any part accepts: a snapshot of a host with sixty-four ranks takes about 100 KiB.
pub const LARGEST_FRAME: usize = 8 << 20;

/// Why bytes are not a frame of this version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    #[error("not a frame of xpu-top: it does not begin with its magic bytes")]
    Foreign,
    #[error(
        "a frame of version {found}, this program reads {VERSION}: run the same xpu-top version on all hosts"
    )]
    Version { found: u16 },
    #[error("a frame of unknown kind {kind}: the sender is newer than this program")]
    Kind { kind: u16 },
    #[error("a frame cut short or too long: {found} bytes where the header says {stated}")]
    Length { stated: usize, found: usize },
    #[error(
        "the payload of a frame of kind {kind} does not decode: its sender does not follow docs/wire-format.md"
    )]
    Payload { kind: u16 },
}

#[derive(Serialize)]
struct Outgoing<'a, T> {
    host: &'a HostName,
    number: u64,
    now: Moment,
    lost: u64,
    body: &'a T,
}

#[derive(Deserialize)]
struct Incoming<T> {
    host: HostName,
    number: u64,
    now: Moment,
    lost: u64,
    body: T,
}

/// A frame as bytes.
pub fn encode(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(512);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(frame.body.kind().to_le_bytes());
    bytes.extend([0; 4]);
    match &frame.body {
        Body::Hello(body) => payload(frame, body, &mut bytes),
        Body::Summary(body) => payload(frame, body, &mut bytes),
        Body::Nccl(body) => payload(frame, body, &mut bytes),
        Body::NcclDetail(body) => payload(frame, body, &mut bytes),
        Body::Goodbye => payload(frame, &(), &mut bytes),
        Body::CaptureAnswer(body) => payload(frame, body, &mut bytes),
        Body::CapturePart(body) => payload(frame, body, &mut bytes),
        Body::Command(body) => payload(frame, body, &mut bytes),
        Body::Request(body) => payload(frame, body, &mut bytes),
        Body::Snapshot(body) => payload(frame, body, &mut bytes),
        Body::Refusal(body) => payload(frame, body, &mut bytes),
        Body::Stacks(body) => payload(frame, body, &mut bytes),
        Body::Relay(body) => payload(frame, body, &mut bytes),
        Body::History(body) => payload(frame, body, &mut bytes),
        Body::Record(body) => payload(frame, body, &mut bytes),
        Body::Kineto(body) => payload(frame, body, &mut bytes),
        Body::KinetoPart(body) => payload(frame, body, &mut bytes),
        Body::PythonSamples(body) => payload(frame, body, &mut bytes),
        Body::Ras(body) => payload(frame, body, &mut bytes),
        Body::Functions(body) => payload(frame, body, &mut bytes),
        Body::Digest(body) => payload(frame, body, &mut bytes),
        Body::Detail(body) => payload(frame, body, &mut bytes),
        Body::Event(body) => payload(frame, body, &mut bytes),
        Body::Exit(body) => payload(frame, body, &mut bytes),
        Body::Cpu(body) => payload(frame, body, &mut bytes),
        Body::Times(body) => payload(frame, body, &mut bytes),
        Body::Work(body) => payload(frame, body, &mut bytes),
        Body::Load(body) => payload(frame, body, &mut bytes),
        Body::Neighbours(body) => payload(frame, body, &mut bytes),
        Body::WhatIf(body) => payload(frame, body, &mut bytes),
        Body::CaptureSheet(body) => payload(frame, body, &mut bytes),
        Body::TimedCaptureSheet(body) => payload(frame, body, &mut bytes),
    }
    let length = u32::try_from(bytes.len() - HEADER).unwrap_or(u32::MAX);
    bytes[8..HEADER].copy_from_slice(&length.to_le_bytes());
    bytes
}

fn payload<T: Serialize>(frame: &Frame, body: &T, bytes: &mut Vec<u8>) {
    let outgoing =
        Outgoing { host: &frame.host, number: frame.number, now: frame.now, lost: frame.lost, body };
    bincode::serde::encode_into_std_write(outgoing, bytes, bincode::config::standard())
        .expect("a Vec takes every byte and these types have no unsupported shapes");
}

/// When a frame was published, without decoding its body. `None` if its envelope does not decode.
pub fn published(frame: &[u8]) -> Option<Moment> {
    let limited = bincode::config::standard().with_limit::<LARGEST_FRAME>();
    let ((_host, _number, now), _): ((HostName, u64, Moment), usize) =
        bincode::serde::decode_from_slice(frame.get(HEADER..)?, limited).ok()?;
    Some(now)
}

/// Decodes a frame from untrusted bytes. Never panics, and never allocates more than [`LARGEST_FRAME`].
pub fn decode(bytes: &[u8]) -> Result<Frame, DecodeError> {
    let header: &[u8; HEADER] = bytes.first_chunk().ok_or(DecodeError::Foreign)?;
    if header[..4] != MAGIC {
        return Err(DecodeError::Foreign);
    }
    let version = u16::from_le_bytes([header[4], header[5]]);
    if version != VERSION {
        return Err(DecodeError::Version { found: version });
    }
    let kind = u16::from_le_bytes([header[6], header[7]]);
    let stated = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let rest = &bytes[HEADER..];
    if rest.len() != stated || bytes.len() > LARGEST_FRAME {
        return Err(DecodeError::Length { stated, found: rest.len() });
    }
    match kind {
        1 => body(kind, rest, Body::Hello),
        2 => body(kind, rest, Body::Summary),
        3 => body(kind, rest, |()| Body::Goodbye),
        4 => body(kind, rest, Body::CaptureAnswer),
        5 => body(kind, rest, Body::CapturePart),
        16 => body(kind, rest, Body::Command),
        32 => body(kind, rest, Body::Request),
        33 => body(kind, rest, Body::Snapshot),
        34 => body(kind, rest, |text: Line| Body::Refusal(text.0)),
        35 => body(kind, rest, Body::Stacks),
        36 => body(kind, rest, Body::Relay),
        37 => body(kind, rest, Body::Kineto),
        38 => body(kind, rest, Body::KinetoPart),
        39 => body(kind, rest, Body::History),
        40 => body(kind, rest, Body::Record),
        41 => body(kind, rest, Body::PythonSamples),
        42 => body(kind, rest, Body::Ras),
        43 => body(kind, rest, Body::Functions),
        64 => body(kind, rest, Body::Digest),
        6 => body(kind, rest, Body::Nccl),
        65 => body(kind, rest, Body::Detail),
        66 => body(kind, rest, Body::Event),
        67 => body(kind, rest, Body::Exit),
        68 => body(kind, rest, Body::Cpu),
        69 => body(kind, rest, Body::Times),
        70 => body(kind, rest, Body::NcclDetail),
        71 => body(kind, rest, Body::Work),
        72 => body(kind, rest, Body::Load),
        73 => body(kind, rest, Body::Neighbours),
        74 => body(kind, rest, Body::WhatIf),
        96 => body(kind, rest, Body::CaptureSheet),
        97 => body(kind, rest, Body::TimedCaptureSheet),
        kind => Err(DecodeError::Kind { kind }),
    }
}

fn body<T: DeserializeOwned>(
    kind: u16,
    bytes: &[u8],
    wrap: impl FnOnce(T) -> Body,
) -> Result<Frame, DecodeError> {
    let limited = bincode::config::standard().with_limit::<LARGEST_FRAME>();
    let (incoming, used): (Incoming<T>, usize) = bincode::serde::decode_from_slice(bytes, limited)
        .map_err(|_foreign| DecodeError::Payload { kind })?;
    if used != bytes.len() {
        return Err(DecodeError::Length { stated: used, found: bytes.len() });
    }
    let Incoming { host, number, now, lost, body } = incoming;
    Ok(Frame { host, number, now, lost, body: wrap(body) })
}
