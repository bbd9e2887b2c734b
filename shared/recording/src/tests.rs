//! Round trips, and files that were cut, damaged, or never were recordings.

use std::time::Duration;

use proptest::prelude::*;
use xpu_simulation::Simulation;
use xpu_wire::{
    codec,
    frame::{Body, Frame, RankDetail, Summary},
    id::Rank,
    unit::Moment,
};

use super::*;

fn header() -> Header {
    Header {
        job: "llama-70b".to_owned(),
        hosts: vec!["gpu-001".to_owned(), "gpu\n002".to_owned()],
        made: Moment(1_800_000_000_000_000_000),
        by: xpu_wire::VERSION.to_owned(),
    }
}

/// The incoming frames of a small job in this number of seconds, including the details of one rank.
fn arrivals(seconds: u64) -> Vec<(Moment, Frame)> {
    let simulation = Simulation::new(3, 2, 4);
    let mut all = Vec::new();
    for second in 0..seconds {
        let mut frames = if second == 0 { simulation.snapshots(second) } else { simulation.digests(second) };
        let detail = RankDetail { job: simulation.job.clone(), rank: Rank(5), summary: Summary::default() };
        frames.push(Frame { body: Body::Detail(detail), ..frames[1].clone() });
        all.extend(frames.into_iter().map(|frame| (frame.now.after(Duration::from_millis(3)), frame)));
    }
    all
}

/// The file that a recorder writes of these arrivals, and the end of each block.
fn written(arrivals: &[(Moment, Frame)], close: bool) -> (Vec<u8>, Vec<u64>) {
    let mut writer = Writer::begin(Vec::new(), &header()).unwrap();
    let mut packer = Packer::default();
    let mut ends = Vec::new();
    let mut write = |writer: &mut Writer<Vec<u8>>, blocks: Vec<SealedBlock>| {
        for block in blocks {
            writer.write(&block).unwrap();
            ends.push(writer.totals().bytes);
        }
    };
    for (at, frame) in arrivals {
        let due = packer.due(*at).unwrap();
        write(&mut writer, due);
        let full = packer.push(*at, frame).unwrap();
        write(&mut writer, full.into_iter().collect());
    }
    let rest = packer.rest().unwrap();
    write(&mut writer, rest);
    let bytes = if close { writer.finish().unwrap().0 } else { writer.out().clone() };
    (bytes, ends)
}

/// Every frame that can be read, in order of arrival.
fn read(recording: &mut Recording) -> Vec<(Moment, Frame)> {
    let mut all = Vec::new();
    for entry in recording.entries().to_vec() {
        let Some(block) = recording.block(&entry).unwrap() else { continue };
        all.extend(block.records().filter_map(|record| {
            let frame = codec::decode(record.frame).ok()?;
            assert_eq!(record.rank, packer::subject(&frame));
            Some((record.at, frame))
        }));
    }
    all.sort_by_key(|(at, _)| *at);
    all
}

fn open(bytes: &[u8]) -> Result<Recording, RecordingError> {
    Recording::open(Media::memory(bytes.to_vec()))
}

/// Details are in their own blocks, so a detail may be read after frames that arrived later.
fn sorted(arrivals: &[(Moment, Frame)]) -> Vec<String> {
    let mut all: Vec<_> = arrivals.iter().map(|arrival| format!("{arrival:?}")).collect();
    all.sort_unstable();
    all
}

#[test]
fn a_recording_is_read_with_and_without_its_index() {
    let arrivals = arrivals(8);
    for close in [true, false] {
        let (bytes, _) = written(&arrivals, close);
        let mut recording = open(&bytes).unwrap();
        assert_eq!(recording.is_closed(), close);
        let expected = Header { hosts: vec!["gpu-001".to_owned(), "gpu?002".to_owned()], ..header() };
        assert_eq!(*recording.header(), expected);
        assert_eq!(recording.span(), Span { first: arrivals[0].0, last: arrivals.last().unwrap().0 });
        assert_eq!(sorted(&read(&mut recording)), sorted(&arrivals));
        assert!(recording.damage().is_empty());
    }
}

#[test]
fn a_file_cut_anywhere_is_read_to_its_last_whole_block() {
    let arrivals = arrivals(5);
    let (bytes, ends) = written(&arrivals, true);
    let frames: Vec<u32> = open(&bytes).unwrap().entries().iter().map(|entry| entry.frames).collect();
    for cut in 0..bytes.len() {
        let whole = ends.iter().filter(|&&end| end <= cut as u64).count();
        match open(&bytes[..cut]) {
            Ok(mut recording) => {
                let expected: u32 = frames[..whole].iter().sum();
                assert_eq!(read(&mut recording).len(), expected as usize, "cut at {cut}");
            }
            Err(RecordingError::Empty) => assert_eq!(cut, 0),
            Err(RecordingError::Foreign) => assert!(cut < MAGIC.len()),
            Err(RecordingError::NoBlocks) => assert_eq!(whole, 0, "cut at {cut}"),
            Err(error) => panic!("cut at {cut}: {error}"),
        }
    }
}

#[test]
fn a_flipped_bit_costs_one_block_and_is_reported() {
    let arrivals = arrivals(5);
    for close in [true, false] {
        let (bytes, ends) = written(&arrivals, close);
        let entries = open(&bytes).unwrap().entries().to_vec();
        for bit in 0..ends.last().unwrap() * 8 {
            let byte = bit / 8;
            let mut broken = bytes.clone();
            broken[byte as usize] ^= 1 << (bit % 8);
            let Ok(mut recording) = open(&broken) else {
                // Only the magic bytes and the version decide whether it is a recording.
                assert!(byte < 10, "bit {bit}");
                continue;
            };
            let hit = entries.iter().find(|entry| (entry.offset..entry.end()).contains(&byte));
            let lost = hit.map_or(0, |entry| entry.frames) as usize;
            assert_eq!(read(&mut recording).len(), arrivals.len() - lost, "bit {bit}");
            // A false header is reported as well, if no index gives the blocks' positions.
            let found = recording.damage().len();
            assert!(found <= 1 && (found == 1 || hit.is_none()), "bit {bit}");
        }
    }
}

#[test]
fn a_file_that_is_no_recording_is_refused_with_advice() {
    let (bytes, _) = written(&arrivals(2), true);
    let why = |bytes: &[u8]| open(bytes).unwrap_err().to_string();
    assert!(why(b"").contains("empty") && why(b"").contains("xpu-top record"));
    assert!(why(b"hello").contains("not a recording"));
    assert!(why(&[0; 4096]).contains("not a recording"));
    assert!(why(&bytes[..15]).contains("no complete block"));
    let mut newer = bytes.clone();
    newer[8] = 2;
    assert!(why(&newer).contains("version 2"));
    assert!(Recording::open_file(std::path::Path::new("/")).unwrap_err().to_string().contains("directory"));
}

/// The reader allocates no more memory than a block may have, whatever size a header claims.
#[test]
fn a_block_with_an_excessive_length_is_no_block() {
    let packed = zstd::bulk::compress(&vec![0; LARGEST_BLOCK + 1], 1).unwrap();
    let none = Moment(0);
    let raw = vec![0; LARGEST_BLOCK];
    let bomb = |entry: Entry| [&header().encode()[..], &entry.header(), &packed].concat();
    let sealed = SealedBlock::seal(Kind::Overview, &raw, 1, none, none).unwrap().entry;
    let (stored, checksum) = (packed.len() as u32, crc32fast::hash(&packed));
    let too_large = bomb(Entry { stored, checksum, raw: LARGEST_BLOCK as u32 + 1, ..sealed });
    assert!(matches!(open(&too_large), Err(RecordingError::NoBlocks)));
    // It claims less than it contains.
    let mut liar = open(&bomb(Entry { stored, checksum, ..sealed })).unwrap();
    assert!(read(&mut liar).is_empty());
    assert_eq!(liar.damage().len(), 1);
}

#[test]
fn recorded_times_never_go_back() {
    let mut arrivals = arrivals(3);
    arrivals.last_mut().unwrap().0 = Moment(5);
    let (bytes, _) = written(&arrivals, true);
    let mut recording = open(&bytes).unwrap();
    let Span { first, last } = recording.span();
    assert!(read(&mut recording).iter().all(|(at, _)| (first..=last).contains(at)));
    assert_eq!(first, arrivals[0].0);
}

#[test]
fn a_ring_keeps_the_last_blocks_as_a_recording() {
    let mut ring = Ring::new(1 << 20, Duration::from_secs(4));
    let mut packer = Packer::default();
    let arrivals = arrivals(20);
    for (at, frame) in &arrivals {
        packer.due(*at).unwrap().into_iter().for_each(|block| ring.push(block));
        packer.push(*at, frame).unwrap().into_iter().for_each(|block| ring.push(block));
    }
    let last = ring.recording(&header()).unwrap().span().last;
    let first = ring.first().unwrap();
    assert!((Duration::from_secs(3)..=Duration::from_secs(5)).contains(&last.since(first)));
    assert_eq!(ring.recording(&header()).unwrap().span().first, first);
    let full = ring.bytes();
    let mut small = Ring::new(full / 2, Duration::from_secs(400));
    let mut packer = Packer::default();
    for (at, frame) in &arrivals {
        packer.due(*at).unwrap().into_iter().for_each(|block| small.push(block));
        packer.push(*at, frame).unwrap().into_iter().for_each(|block| small.push(block));
    }
    assert!(small.bytes() <= full / 2 && small.bytes() > 0);
}

/// Ways to damage a file.
#[derive(Clone, Debug)]
enum Harm {
    Flip(Vec<(usize, u8)>),
    Cut(usize),
    CutOut(usize, usize),
    Insert(usize, Vec<u8>),
    Repeat(usize, usize),
}

fn harm() -> impl Strategy<Value = Harm> {
    let place = || 0..usize::MAX;
    prop_oneof![
        proptest::collection::vec((place(), 1_u8..), 1..16).prop_map(Harm::Flip),
        place().prop_map(Harm::Cut),
        (place(), 1_usize..4096).prop_map(|(at, length)| Harm::CutOut(at, length)),
        (place(), proptest::collection::vec(any::<u8>(), 1..200))
            .prop_map(|(at, bytes)| Harm::Insert(at, bytes)),
        (place(), 1_usize..4096).prop_map(|(at, length)| Harm::Repeat(at, length)),
    ]
}

fn harmed(mut bytes: Vec<u8>, harm: &Harm) -> Vec<u8> {
    let length = bytes.len().max(1);
    match harm {
        Harm::Flip(flips) => {
            for (at, mask) in flips {
                if let Some(byte) = bytes.get_mut(at % length) {
                    *byte ^= mask;
                }
            }
        }
        Harm::Cut(at) => bytes.truncate(at % length),
        Harm::CutOut(at, some) => {
            let at = (at % length).min(bytes.len());
            bytes.drain(at..(at + some).min(bytes.len()));
        }
        Harm::Insert(at, more) => {
            let at = (at % length).min(bytes.len());
            bytes.splice(at..at, more.iter().copied());
        }
        Harm::Repeat(at, some) => {
            let at = (at % length).min(bytes.len());
            let piece = bytes[at..(at + some).min(bytes.len())].to_vec();
            bytes.splice(at..at, piece);
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    /// `PROPTEST_CASES` sets the number of cases.
    #[test]
    fn a_harmed_file_never_panics_and_gives_only_frames_that_were_recorded(
        harms in proptest::collection::vec(harm(), 1..4),
        close in any::<bool>(),
    ) {
        use std::{collections::HashSet, sync::OnceLock};
        static FILES: OnceLock<([Vec<u8>; 2], HashSet<String>)> = OnceLock::new();
        let (files, known) = FILES.get_or_init(|| {
            let arrivals = arrivals(4);
            ([written(&arrivals, false).0, written(&arrivals, true).0], sorted(&arrivals).into_iter().collect())
        });
        let bytes = harms.iter().fold(files[usize::from(close)].clone(), harmed);
        if let Ok(mut recording) = open(&bytes) {
            for arrival in read(&mut recording) {
                let text = format!("{arrival:?}");
                prop_assert!(known.contains(&text));
            }
        }
    }

    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(any::<u8>(), 0..512)) {
        if let Ok(mut recording) = open(&[&header().encode()[..], &bytes].concat()) {
            read(&mut recording);
        }
    }

    #[test]
    fn any_recorded_arrivals_are_read_back(
        picks in proptest::collection::vec((0_usize..30, 0_u64..3_000), 1..60),
        close in any::<bool>(),
    ) {
        let some = arrivals(10);
        let mut now = 1_800_000_000_000;
        let arrivals: Vec<_> = picks
            .into_iter()
            .map(|(pick, wait)| {
                now += wait;
                (Moment(now * 1_000_000), some[pick].1.clone())
            })
            .collect();
        prop_assume!(arrivals.iter().any(|(_, frame)| !matches!(frame.body, Body::Detail(_))));
        let (bytes, _) = written(&arrivals, close);
        prop_assert_eq!(sorted(&read(&mut open(&bytes).unwrap())), sorted(&arrivals));
    }
}

#[test]
fn blocks_are_sealed_even_if_the_clock_is_set_back() {
    let (mut packer, frame) = (Packer::default(), Simulation::new(7, 1, 1).digests(5).remove(0));
    let second = |second: u64| Moment((100_000 + second) * 1_000_000_000);
    let mut sealed = Vec::new();
    for now in (0..5).map(second).chain((0..5).map(|at| Moment(second(at).0 - 3600 * 1_000_000_000))) {
        sealed.extend(packer.due(now).unwrap());
        sealed.extend(packer.push(now, &frame).unwrap());
    }
    assert_eq!(sealed.len(), 8, "a block for each second that passed");
    sealed.extend(packer.rest().unwrap());
    let times: Vec<_> = sealed.iter().map(|block| block.entry.first).collect();
    assert!(times.is_sorted() && times[8].since(times[0]) >= Duration::from_secs(7), "{times:?}");
}
