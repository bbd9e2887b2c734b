//! What a host published before, for a new viewer.

use std::fmt;

use serde::{Deserialize, Serialize, de};

use super::{Body, Frame};
use crate::codec;

/// Frames of the topics `<job>/o` and `<job>/e` as they were published, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub frames: Packed,
    /// Another part follows.
    pub more: bool,
}

impl History {
    /// Bytes of frames in one part, so that no other answer waits long behind it.
    pub const PART: usize = 1 << 20;
}

/// Encoded frames, one after the other.
#[derive(Clone, Default, PartialEq)]
pub struct Packed(Vec<u8>);

impl Packed {
    pub fn push(&mut self, frame: &[u8]) {
        self.0.extend(frame);
    }

    /// Their size in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bytes of each frame. Ends early at a length that exceeds the remaining bytes.
    pub fn split(&self) -> impl Iterator<Item = &[u8]> {
        let mut rest = &self.0[..];
        std::iter::from_fn(move || {
            let header: &[u8; codec::HEADER] = rest.first_chunk()?;
            let length = u32::from_le_bytes([header[8], header[9], header[10], header[11]]) as usize;
            let (frame, after) = rest.split_at_checked(codec::HEADER.checked_add(length)?)?;
            rest = after;
            Some(frame)
        })
    }

    /// The frames that decode. A history within a history is left out: no collector sends one, and it could
    /// nest without limit.
    pub fn frames(&self) -> impl Iterator<Item = Frame> {
        let decoded = self.split().filter_map(|frame| codec::decode(frame).ok());
        decoded.filter(|frame| !matches!(frame.body, Body::History(_)))
    }
}

impl fmt::Debug for Packed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.0.len())
    }
}

impl Serialize for Packed {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Packed {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bytes;

        impl de::Visitor<'_> for Bytes {
            type Value = Packed;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("encoded frames")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Packed, E> {
                Ok(Packed(bytes.to_vec()))
            }
        }

        deserializer.deserialize_bytes(Bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unit::Moment;

    fn frame(number: u64, body: Body) -> Frame {
        Frame { host: "a".into(), number, now: Moment(9), lost: 0, body }
    }

    #[test]
    fn frames_are_read_back_up_to_a_torn_one() {
        let frames = [1, 2].map(|number| frame(number, Body::Goodbye));
        let mut packed = Packed::default();
        for frame in &frames {
            packed.push(&codec::encode(frame));
        }
        assert_eq!(packed.frames().collect::<Vec<_>>(), frames);
        packed.0.pop();
        assert_eq!(packed.frames().collect::<Vec<_>>(), frames[..1]);
    }

    #[test]
    fn a_nested_history_is_left_out() {
        let mut packed = Packed::default();
        packed.push(&codec::encode(&frame(1, Body::History(History::default()))));
        assert_eq!(packed.frames().count(), 0);
    }
}
