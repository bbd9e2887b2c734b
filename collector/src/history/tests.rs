use std::fs::{self, OpenOptions};

use xpu_model::{
    finding::{self, Finding},
    job::Jobs,
};
use xpu_simulation::Simulation;
use xpu_wire::{frame::RankDigest, id::Rank};

use super::*;

const SECOND: u64 = 1_000_000_000;

struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("xpu-top-past-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn file(&self) -> PathBuf {
        self.0.join("history.xpurec")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Publishes the digests of these seconds.
fn publish(past: &mut Past, simulation: &Simulation, seconds: std::ops::Range<u64>) {
    for second in seconds {
        let now = Moment(second * SECOND);
        let frame = Frame { now, ..simulation.digests(second).remove(0) };
        past.keep(&frame, &codec::encode(&frame), now);
        past.tend(now);
    }
}

fn recalled(past: &mut Past, jobs: &[(JobName, Moment)], length: u64, now: u64) -> Vec<u64> {
    let parts = past.of(jobs, Duration::from_secs(length), Moment(now * SECOND));
    let frames: Vec<_> = parts.iter().flat_map(|part| part.frames.frames()).collect();
    assert!(parts[..parts.len() - 1].iter().all(|part| part.more) && !parts[parts.len() - 1].more);
    frames.iter().map(|frame| frame.now.0 / SECOND).collect()
}

#[test]
fn a_late_subscriber_receives_the_history_of_the_present_jobs() {
    let place = Place::new("given");
    let simulation = Simulation::new(1, 1, 8);
    let jobs = [(simulation.job.clone(), Moment(0))];
    let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
    publish(&mut past, &simulation, 1000..1100);
    assert_eq!(recalled(&mut past, &jobs, 60, 1099), (1039..1100).collect::<Vec<_>>());
    assert_eq!(recalled(&mut past, &jobs, 5, 1099), (1094..1100).collect::<Vec<_>>(), "once more, and less");
    assert_eq!(recalled(&mut past, &[("other".into(), Moment(0))], 60, 1099), Vec::<u64>::new());
    let again = [(simulation.job.clone(), Moment(1090 * SECOND))];
    assert_eq!(
        recalled(&mut past, &again, 60, 1099),
        (1090..1100).collect::<Vec<_>>(),
        "of an earlier run nothing"
    );
}

#[test]
fn a_new_collector_continues_the_history_and_skips_torn_frames() {
    let place = Place::new("takes-over");
    let simulation = Simulation::new(1, 1, 8);
    let jobs = [(simulation.job.clone(), Moment(0))];
    let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
    publish(&mut past, &simulation, 1000..1065);
    // Simulates a killed collector: uncompressed frames are lost, and the last block is torn.
    drop(past);
    let file = OpenOptions::new().write(true).open(place.file()).unwrap();
    file.set_len(file.metadata().unwrap().len() - 7).unwrap();
    let mut past = Past::open(&place.file(), Moment(1070 * SECOND));
    publish(&mut past, &simulation, 1070..1080);
    let known = recalled(&mut past, &jobs, 600, 1080);
    assert_eq!(known.first(), Some(&1000));
    assert!(known.contains(&1040) && known.contains(&1079) && !known.contains(&1060), "{known:?}");
    drop(past);
    let mut past = Past::open(&place.file(), Moment(1655 * SECOND));
    let known = recalled(&mut past, &jobs, 600, 1655);
    assert!(known.iter().all(|second| *second >= 1055), "what is older is gone: {known:?}");
}

#[test]
fn a_day_of_history_stays_within_its_bounds_in_memory_and_on_disk() {
    let place = Place::new("bounded");
    let simulation = Simulation::new(1, 1, 8);
    let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
    publish(&mut past, &simulation, 1000..1700);
    let (memory, disk) = (past.seconds.bytes(), on_disk(&place));
    publish(&mut past, &simulation, 1700..8000);
    assert!(past.seconds.bytes() < memory + memory / 4, "{} of {memory} bytes", past.seconds.bytes());
    assert!(on_disk(&place) < 2 * disk + disk / 2, "{} of {disk} bytes", on_disk(&place));
    println!("a rank takes {} bytes a second", memory / 600 / 8);
}

fn on_disk(place: &Place) -> u64 {
    fs::read_dir(&place.0).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum()
}

#[test]
fn without_a_writable_folder_the_history_is_in_memory() {
    let simulation = Simulation::new(1, 1, 2);
    let jobs = [(simulation.job.clone(), Moment(0))];
    let mut past = Past::open(Path::new("/proc/self/nowhere/history.xpurec"), Moment(1000 * SECOND));
    publish(&mut past, &simulation, 1000..1010);
    assert_eq!(recalled(&mut past, &jobs, 60, 1010).len(), 10);
}

/// The seconds between one frame and the next, in order.
fn apart(reported: &[u64]) -> Vec<u64> {
    reported.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

/// Four hours: the finer tiers receive more than they keep.
#[test]
fn older_history_is_coarser_and_covers_each_time_once() {
    let place = Place::new("tiers");
    let simulation = Simulation::new(1, 1, 1);
    let jobs = [(simulation.job.clone(), Moment(0))];
    let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
    let end = 1000 + 4 * 3600;
    publish(&mut past, &simulation, 1000..end);
    let known = recalled(&mut past, &jobs, 86_400, end);
    assert!(known[0] < 1060, "a day is kept: {}", known[0]);
    let apart = self::apart(&known);
    let count = |of: std::ops::RangeInclusive<u64>| apart.iter().filter(|gap| of.contains(gap)).count();
    assert!(known.is_sorted() && apart.iter().all(|gap| *gap <= 120), "{apart:?}");
    assert!((600..=620).contains(&count(1..=1)), "{} single seconds", count(1..=1));
    assert!((655..=680).contains(&count(10..=10)), "{} tens", count(10..=10));
    assert!((115..=125).contains(&count(60..=60)), "{} minutes", count(60..=60));
    assert!(apart.len() - count(1..=1) - count(10..=10) - count(60..=60) <= 4, "{apart:?}");

    // Half of what each tier keeps, and at least two minutes of single seconds.
    for (hours, singles, tens) in [(12, 300, 330), (3, 120, 78)] {
        let known = recalled(&mut past, &jobs, hours * 3600, end);
        let apart = self::apart(&known);
        let count = |gap: u64| apart.iter().filter(|apart| **apart == gap).count();
        assert!(known.is_sorted() && apart.iter().all(|gap| (1..=120).contains(gap)), "{apart:?}");
        assert!((singles..=singles + 10).contains(&count(1)), "{hours} hours: {} single seconds", count(1));
        assert!((tens - 6..=tens + 6).contains(&count(10)), "{hours} hours: {} tens", count(10));
        let reach = (end - 1000).min(hours * 3600);
        assert!(end - known[0] >= reach - 60, "{hours} hours: {} s", end - known[0]);
    }
}

/// Four hours. The digests that a thinned history merges have the totals of the last of them, and each timed
/// collective once.
#[test]
fn a_thinned_history_covers_all_of_the_time_with_few_digests() {
    let place = Place::new("thinned");
    let mut simulation = Simulation::new(1, 1, 1);
    simulation.started = Moment(0);
    let jobs = [(simulation.job.clone(), Moment(1000 * SECOND))];
    let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
    let end = 1000 + 4 * 3600;
    publish(&mut past, &simulation, 1000..end);
    for (digests, newest) in [(32, 18), (200, 110), (660, 120), (10_000, 120)] {
        let parts = past.thinned(&jobs, Duration::from_hours(24), digests, Moment(end * SECOND));
        let frames: Vec<_> = parts.iter().flat_map(|part| part.frames.frames()).collect();
        let known: Vec<_> = frames.iter().map(|frame| frame.now.0 / SECOND).collect();
        assert!(known.len() <= digests as usize + 1, "{} digests instead of {digests}", known.len());
        assert!(digests > 660 || known.len() + 8 > digests as usize, "{} of {digests}", known.len());
        assert!(known.is_sorted() && known.ends_with(&(end - newest..end).collect::<Vec<_>>()), "{known:?}");
        // A span ends with a digest, and the oldest is the longest.
        let longest = f64::from(end as u32 - 1000) * 14.0 / f64::from(digests);
        assert!(known[0] - 1000 <= longest as u64 + 61, "{digests}: from {}", known[0]);
        let mut sequences = std::collections::BTreeSet::new();
        for frame in &frames {
            let Body::Digest(digest) = &frame.body else { unreachable!() };
            let [rank] = &digest.ranks[..] else { panic!("{digest:?}") };
            let second = frame.now.0 / SECOND;
            let Body::Digest(published) = &simulation.digests(second)[0].body else { unreachable!() };
            assert_eq!((rank.step, rank.heard), (published.ranks[0].step, published.ranks[0].heard));
            let is_new = rank.samples.iter().all(|sample| sequences.insert(sample.sequence));
            assert!(
                is_new && rank.samples.len() <= RankDigest::SAMPLES,
                "{second}: {is_new} {}",
                rank.samples.len()
            );
        }
    }
}

#[test]
fn a_new_collector_has_all_tiers() {
    let place = Place::new("tiers-again");
    let simulation = Simulation::new(1, 1, 1);
    let jobs = [(simulation.job.clone(), Moment(0))];
    let mut past = Past::open(&place.file(), Moment(1000 * SECOND));
    let end = 1000 + 3 * 3600;
    publish(&mut past, &simulation, 1000..end);
    drop(past);
    // Damages all files.
    for file in fs::read_dir(&place.0).unwrap() {
        let file = OpenOptions::new().write(true).open(file.unwrap().path()).unwrap();
        file.set_len(file.metadata().unwrap().len() - 7).unwrap();
    }
    let mut past = Past::open(&place.file(), Moment((end + 5) * SECOND));
    publish(&mut past, &simulation, end + 5..end + 1200);
    let known = recalled(&mut past, &jobs, 86_400, end + 1200);
    assert!(known[0] < 1060 && known.is_sorted());
    // A torn block of the middle tier holds 150 s.
    assert!(apart(&known).iter().all(|gap| *gap <= 180), "no more is missing: {:?}", apart(&known));
}

/// Compares a viewer that was always connected with one that connects after hours, even to a collector that
/// was killed and restarted.
#[test]
fn a_viewer_after_hours_has_the_same_findings_and_times_as_one_from_the_start() {
    let place = Place::new("since");
    let mut simulation = Simulation::new(1, 1, 4);
    simulation.started = Moment(1_000_000 * SECOND);
    let at = |second: u64| Moment(simulation.started.0 + second * SECOND);
    let jobs = [(simulation.job.clone(), Moment(0))];
    let mut always = Jobs::default();
    let mut past = Past::open(&place.file(), at(100));
    let (began, end) = (3600, 3 * 3600);
    for second in 100..end {
        let mut frame = simulation.digests(second).remove(0);
        let Body::Digest(digest) = &mut frame.body else { unreachable!() };
        for digest in &mut digest.ranks {
            // The straggler waits for no rank.
            let waited = if digest.rank == Rank(2) { second.min(began) } else { second };
            digest.exposed_for = Some((Duration::from_secs(waited) / 5).into());
            for sample in digest.samples.iter_mut().filter(|_| second >= began && digest.rank != Rank(2)) {
                sample.duration.0 += 3_000_000;
            }
        }
        past.keep(&frame, &codec::encode(&frame), frame.now);
        past.tend(frame.now);
        always.fold(&frame);
        if second == 2 * 3600 {
            past = Past::open(&place.file(), frame.now);
        }
    }
    let found = |known: &Jobs| finding::examine(known.foremost().unwrap(), at(end));
    let mut late = Jobs::default();
    for part in past.of(&jobs, Duration::from_hours(24), at(end)) {
        part.frames.frames().for_each(|frame| late.fold(&frame));
    }
    let (always, late) = (found(&always), found(&late));
    let brief = |findings: &[Finding]| -> Vec<_> {
        findings.iter().map(|finding| (finding.kind, finding.class, finding.ranks.clone())).collect()
    };
    assert_eq!(brief(&always), brief(&late));
    let [one, other] = [&always[0], &late[0]];
    assert_eq!(one.ranks, [Rank(2)], "{}", one.evidence);
    let really = (end - began) as f64;
    for since in [one.since_s, other.since_s] {
        assert!((since / really - 1.0).abs() < 0.1, "since {since} s, really {really}");
    }
    let [one, other] = [one.cost.unwrap(), other.cost.unwrap()];
    assert!((one.gpu_hours / other.gpu_hours - 1.0).abs() < 0.1, "{one} and {other}");
}
