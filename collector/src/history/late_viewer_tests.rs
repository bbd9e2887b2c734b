//! A viewer that comes late to a job of many hosts has the same findings as one that was always there.

use std::{path::Path, time::Instant};

use xpu_model::{
    finding::{EndedFinding, EndedFindings, Finding, examine},
    job::{Job, Jobs},
};
use xpu_net::recall::{self, Recall};
use xpu_simulation::Simulation;
use xpu_wire::{frame::Request, id::Rank};

use super::*;

const SECOND: u64 = 1_000_000_000;

/// A job whose rank 1 was late for some time, and whose rank 2 is late.
struct TwoFaults {
    simulation: Simulation,
    was_late: std::ops::Range<u64>,
    is_late: u64,
    end: u64,
}

impl TwoFaults {
    fn new(hosts: u32, was_late: std::ops::Range<u64>, is_late: u64, end: u64) -> Self {
        let late = vec![(Rank(1), was_late.clone()), (Rank(2), is_late..u64::MAX)];
        let simulation = Simulation { late, ..Simulation::new(1, hosts, 1) };
        Self { simulation, was_late, is_late, end }
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

    fn found(&self) -> (Vec<Finding>, Vec<EndedFinding>) {
        let mut found = examine(self.job(), self.jobs.clock());
        self.ended.extend(&mut found, self.job(), self.jobs.clock());
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
        for (past, frame) in pasts.iter_mut().zip(job.simulation.digests(second)) {
            past.keep(&frame, &codec::encode(&frame), frame.now);
            past.tend(frame.now);
            always.take(&frame);
        }
    }
    let Request::ThinnedHistory { length, digests } = recall::request(asked) else { unreachable!() };
    let now = Instant::now();
    let mut recall = Recall::begin(now);
    let jobs = [(name.clone(), job.at(100))];
    for (past, frame) in pasts.iter_mut().zip(job.simulation.digests(job.end)) {
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
        assert!((gone.began_at - began).abs() < 2.0 * length && gone.ended_at > gone.began_at, "{gone:#?}");
    }
}

/// Both faults began more than an hour ago.
#[test]
fn of_20_hosts_with_faults_of_hours_ago() {
    both_find_the_same(&TwoFaults::new(20, 300..1300, 1900, 6400), 20, 0.1);
}

/// Both faults began minutes ago.
#[test]
fn of_136_hosts_with_faults_of_minutes_ago() {
    both_find_the_same(&TwoFaults::new(136, 200..300, 460, 700), 136, 0.1);
}

/// As few digests of each rank as of 1,250 hosts: the fault began within one of about a hundred seconds.
#[test]
fn with_the_fewest_digests() {
    both_find_the_same(&TwoFaults::new(20, 0..0, 500, 900), 1250, 0.25);
}
