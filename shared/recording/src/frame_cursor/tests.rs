use xpu_simulation::Simulation;

use super::*;
use crate::{Header, Media, Packer, Writer};

const SECONDS: u64 = 90;

/// A minute and a half of two hosts; the damaged variant has one byte changed in the middle of its middle
/// block.
fn cursor(damaged: bool) -> FrameCursor {
    let simulation = Simulation::new(3, 2, 4);
    let (mut writer, mut packer) =
        (Writer::begin(Vec::new(), &Header::default()).expect("memory"), Packer::default());
    for second in 0..SECONDS {
        for frame in simulation.digests(second) {
            let due = packer.due(frame.now).expect("it compresses");
            let full = packer.push(frame.now, &frame).expect("it compresses");
            due.iter().chain(&full).for_each(|block| writer.write(block).expect("memory"));
        }
    }
    packer.rest().iter().flatten().for_each(|block| writer.write(block).expect("memory"));
    let (mut bytes, _) = writer.finish().expect("memory");
    let open = |bytes: &[u8]| Recording::open(Media::memory(bytes.to_vec())).expect("it was just written");
    if damaged {
        let entries = open(&bytes).entries().to_vec();
        let middle = entries[entries.len() / 2];
        // Its header is 48 bytes long.
        bytes[middle.offset as usize + 48 + middle.stored as usize / 2] ^= 1;
    }
    FrameCursor::new(open(&bytes))
}

fn all(cursor: &mut FrameCursor, to: Moment) -> Vec<(Moment, Frame)> {
    std::iter::from_fn(|| cursor.next(to).expect("memory")).collect()
}

/// One cursor has its own reader; the other reads block by block on request.
#[test]
fn frames_read_ahead_are_the_frames_read_later() {
    for damaged in [false, true] {
        let (mut ahead, mut plain) = (cursor(damaged), cursor(damaged));
        let last = plain.span().last;
        ahead.rewind(last);
        assert!(ahead.reader.is_some(), "{} blocks are a long way", ahead.entries.len());
        let (read, expected) = (all(&mut ahead, last), all(&mut plain, last));
        assert_eq!(read.len() < SECONDS as usize * 2, damaged);
        assert!(read == expected, "{} frames, {}", read.len(), expected.len());
        assert_eq!(ahead.complaints(), plain.complaints());
        assert_eq!(ahead.complaints().len(), usize::from(damaged), "{:?}", ahead.complaints());
        // The cursor goes back exactly as far as requested.
        let middle = plain.span().first.after(Duration::from_secs(SECONDS / 2));
        ahead.rewind(middle);
        let until = expected.iter().take_while(|(at, _)| *at <= middle);
        assert_eq!(all(&mut ahead, middle).len(), until.count());
    }
}
