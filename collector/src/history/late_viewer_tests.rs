//! A viewer that comes late to a job of many hosts has the same findings as one that was always there.

use std::{path::Path, time::Instant};

use xpu_model::{
    finding::{EndedFindings, Episode, Finding, examine},
    job::{Job, Jobs},
};
use xpu_net::recall::{self, Recall};
use xpu_wire::{frame::Request, id::Rank, simulation::Simulation};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A job whose rank 1 was late for some time, and whose rank 2 is late: the other ranks wait 3 ms for it in each
/// collective.
struct TwoFaults {
    simulation: Simulation,
    was_late: std::ops::Range<u64>,
    is_late: u64,
    end: u64,
}

impl TwoFaults {
    fn late(&self, second: u64) -> Option<Rank> {
        if self.was_late.contains(&second) {
            return Some(Rank(1));
        }
        (second >= self.is_late).then_some(Rank(2))
    }

    /// How many of the seconds so far the rank was late.
    fn late_for(&self, rank: Rank, second: u64) -> u64 {
        match rank {
            Rank(1) => second.clamp(self.was_late.start, self.was_late.end) - self.was_late.start,
            Rank(2) => second.saturating_sub(self.is_late),
            _ => 0,
        }
    }

    /// The frames of all hosts.
    fn frames(&self, second: u64) -> Vec<Frame> {
        let mut frames = self.simulation.digests(second);
        for frame in &mut frames {
            let Body::Digest(digest) = &mut frame.body else { unreachable!() };
            for digest in &mut digest.ranks {
                // GEMMs wait for communication for a fifth of the time, but not on a late rank.
                let waited = second - self.late_for(digest.rank, second);
                digest.exposed_for = Some((Duration::from_secs(waited) / 5).into());
                let late = self.late(second);
                for sample in
                    digest.samples.iter_mut().filter(|_| late.is_some_and(|late| late != digest.rank))
                {
                    sample.duration.0 += 3_000_000;
                }
            }
        }
        frames
    }

    fn at(&self, second: u64) -> Moment {
        Moment(self.simulation.started.0 + second * SECOND)
    }
}

/// What a viewer knows, as `status` keeps it.
#[derive(Default)]
struct Viewer {
    jobs: Jobs,
    ended: EndedFindings,
}

impl Viewer {
    fn take(&mut self, frame: &Frame) {
        if let Some(job) = self.jobs.foremost() {
            self.ended.look(job, self.jobs.clock());
        }
        self.jobs.fold(frame);
    }

    fn job(&self) -> &Job {
        self.jobs.foremost().expect("frames")
    }

    fn found(&self) -> (Vec<Finding>, Vec<Episode>) {
        let mut found = examine(self.job(), self.jobs.clock());
        self.ended.extend(&mut found, self.jobs.clock());
        let gone = self.ended.gone(&found);
        (found, gone)
    }
}

/// Plays the job up to its end. The late viewer comes then, and asks as one of this many hosts.
fn play(job: &TwoFaults, asked: usize) -> (Viewer, Viewer) {
    let Simulation { job: name, started, hosts, .. } = &job.simulation;
    let nowhere = Path::new("/dev/null/history");
    let mut pasts: Vec<_> = (0..*hosts).map(|_| Past::open(nowhere, *started)).collect();
    let mut always = Viewer::default();
    for second in 100..=job.end {
        for (past, frame) in pasts.iter_mut().zip(job.frames(second)) {
            past.keep(&frame, &codec::encode(&frame), frame.now);
            past.tend(frame.now);
            always.take(&frame);
        }
    }
    let Request::ThinnedHistory { length, digests } = recall::request(asked) else { unreachable!() };
    let now = Instant::now();
    let mut recall = Recall::begin(now);
    let jobs = [(name.clone(), job.at(100))];
    for (past, frame) in pasts.iter_mut().zip(job.frames(job.end)) {
        for part in past.thinned(&jobs, length.into(), digests, job.at(job.end)) {
            recall.take(Vec::new(), Frame { body: Body::History(part), ..frame.clone() }, now);
        }
    }
    let mut viewer = Viewer::default();
    for (_, frame) in recall.frames() {
        let Body::History(history) = frame.body else { unreachable!() };
        history.frames.frames().for_each(|frame| viewer.take(&frame));
    }
    (always, viewer)
}

/// Both viewers find the same, with the same cost. The begin may differ by this share of the time since then.
fn both_find_the_same(job: &TwoFaults, asked: usize, share: f64) {
    let (always, viewer) = play(job, asked);
    let ((always, gone), (late_found, late_gone)) = (always.found(), viewer.found());
    let ([one], [other]) = (&always[..], &late_found[..]) else { panic!("{always:#?}\n{late_found:#?}") };
    assert_eq!((one.kind, one.class, &one.ranks), (other.kind, other.class, &other.ranks));
    assert_eq!(one.ranks, [Rank(2)], "{}", one.evidence);
    let really = (job.end - job.is_late) as f64;
    for since in [one.since_s, other.since_s] {
        assert!((since / really - 1.0).abs() < share, "since {since} s, really {really}");
    }
    let [one, other] = [one.cost.unwrap(), other.cost.unwrap()];
    assert!((one.pct / other.pct - 1.0).abs() < 0.05, "{one} and {other}");
    assert!((one.gpu_hours / other.gpu_hours - 1.0).abs() < 2.0 * share, "{one} and {other}");
    for gone in [&gone, &late_gone] {
        if job.was_late.is_empty() {
            assert!(gone.is_empty(), "{gone:#?}");
            continue;
        }
        let [gone] = &gone[..] else { panic!("{gone:#?}") };
        assert_eq!(gone.ranks, [Rank(1)]);
        let length = (job.was_late.end - job.was_late.start) as f64;
        let began = job.at(job.was_late.start).0 as f64 / 1e9;
        assert!((gone.came_at - began).abs() < 2.0 * length && gone.went_at > gone.came_at, "{gone:#?}");
    }
}

/// Both faults began more than an hour ago.
#[test]
fn of_20_hosts_with_faults_of_hours_ago() {
    let simulation = Simulation::new(1, 20, 1);
    both_find_the_same(&TwoFaults { simulation, was_late: 300..1300, is_late: 1900, end: 6400 }, 20, 0.1);
}

/// Both faults began minutes ago.
#[test]
fn of_136_hosts_with_faults_of_minutes_ago() {
    let simulation = Simulation::new(1, 136, 1);
    both_find_the_same(&TwoFaults { simulation, was_late: 200..300, is_late: 460, end: 700 }, 136, 0.1);
}

/// As few digests of each rank as of 1,250 hosts: the fault began within one of about a hundred seconds.
#[test]
fn with_the_fewest_digests() {
    let simulation = Simulation::new(1, 20, 1);
    both_find_the_same(&TwoFaults { simulation, was_late: 0..0, is_late: 500, end: 900 }, 1250, 0.25);
}
