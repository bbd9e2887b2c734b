//! Makes the history that a collector leaves in its runtime directory, from given frames.

use std::{fs::File, path::Path, time::Duration};

use xpu_recording::{Header, Packer, Writer};
use xpu_wire::{
    endpoint::{BasePort, RuntimeDir},
    frame::{Body, Frame, RankDigest},
    sampling::priority,
    unit::Moment,
};

/// The number of timed collectives in a coarse digest.
const COARSE: usize = 8;

/// The three tiers, by the suffix of their files: the interval between digests, and how far back they reach,
/// both in seconds.
const TIERS: [(&str, u64, u64); 3] = [("", 1, 600), ("-tens", 10, 7_200), ("-minutes", 60, 86_400)];

/// Writes the history of a job of this age, in seconds, as it is at `now`. `of` gives the digest of that many
/// seconds ago.
///
/// # Panics
/// If the disk is full.
pub fn leave(runtime: &Path, base: BasePort, now: Moment, age: u64, of: impl Fn(u64) -> Frame) {
    for (name, apart, back) in TIERS {
        let back = back.min(age.saturating_sub(apart));
        let file = RuntimeDir::at(runtime).history(base);
        let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let file = File::create(file.with_file_name(format!("{stem}{name}.xpurec"))).expect("a file");
        let mut writer = Writer::begin(file, &Header::default()).expect("a header");
        let mut packer = Packer::closing_after(Duration::from_secs(apart * 20));
        for ago in (1..back).rev().filter(|ago| (now.0 / 1_000_000_000 - ago + 1).is_multiple_of(apart)) {
            let mut frame = of(ago);
            // The frame also has the samples of the other seconds in its interval.
            (1..apart).for_each(|before| merge(&mut frame, of(ago + before)));
            thin(&mut frame, apart);
            let at = Moment(now.0 - ago * 1_000_000_000);
            let full = packer.push(at, &frame).expect("a frame");
            let old = packer.due(at).expect("blocks");
            full.iter().chain(&old).for_each(|block| writer.write(block).expect("room"));
        }
        packer.rest().expect("blocks").iter().for_each(|block| writer.write(block).expect("room"));
    }
}

fn ranks(frame: &mut Frame) -> &mut [RankDigest] {
    match &mut frame.body {
        Body::Digest(digest) => &mut digest.ranks,
        _ => &mut [],
    }
}

fn merge(frame: &mut Frame, mut before: Frame) {
    for (digest, before) in ranks(frame).iter_mut().zip(ranks(&mut before)) {
        digest.samples.append(&mut before.samples);
    }
}

/// Keeps only the samples that a coarser rate would have timed, as a collector does.
fn thin(frame: &mut Frame, apart: u64) {
    let rarity = |sequence: u64| priority(sequence).leading_zeros();
    for digest in ranks(frame).iter_mut().filter(|_| apart > 1) {
        let mut least = 0;
        while digest.samples.len() > COARSE {
            least += 1;
            digest.samples.retain(|sample| rarity(sample.sequence.0) >= least);
        }
    }
}
