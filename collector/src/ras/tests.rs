use std::process::{Child, Command};

use xpu_wire::endpoint::variable;

use super::*;
use crate::{address::Identity, environment::Environment};

fn viewer(number: u8) -> Address {
    Address { to: Identity(vec![number]), route: Vec::new() }
}

/// A process of job `train` with these variables in its environment.
struct Sleeper(Child);

impl Sleeper {
    fn with(set: &[(&str, &str)]) -> Self {
        let mut command = Command::new("sleep");
        let command = command.arg("600").env_remove("NCCL_RAS_ADDR").env(variable::JOB, "train");
        let new = Self(command.envs(set.iter().copied()).spawn().unwrap());
        let deadline = Instant::now() + Duration::from_secs(30);
        // While the process executes its program, its environment is empty for a moment.
        let has = || {
            let environment = Environment::of(Pid(new.0.id()), &"train".into());
            environment.is_some_and(|environment| environment.value(variable::JOB).is_some())
        };
        while !has() {
            assert!(Instant::now() < deadline);
            thread::yield_now();
        }
        new
    }

    fn target(&self, job: &str) -> Target {
        Target { job: job.into(), pids: vec![Pid(self.0.id())], creating: false }
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ask_now(target: &Target) -> (RasReport, Vec<u8>) {
    ask(target, &AtomicBool::new(target.creating))
}

fn answered(ras: &mut Ras) -> Answered {
    let deadline = Instant::now() + Duration::from_mins(1);
    loop {
        if let Some(reported) = ras.turn(Instant::now()).pop() {
            return reported;
        }
        assert!(Instant::now() < deadline);
        thread::yield_now();
    }
}

#[test]
fn the_environment_of_the_ranks_sets_address_and_use_of_ras() {
    let of = |set: &[(&str, &str)]| {
        let sleeper = Sleeper::with(set);
        let (report, raw) = ask_now(&sleeper.target("train"));
        assert!(raw.is_empty() && !report.is_answered());
        (report.address, report.why)
    };
    let (address, why) = of(&[("NCCL_RAS_ADDR", "127.0.0.1:1")]);
    assert_eq!(address, "127.0.0.1:1");
    assert!(why.contains("127.0.0.1:1: nothing listens there"), "{why}");
    let (_, why) = of(&[("NCCL_RAS_ENABLE", "0")]);
    assert!(why.contains("RAS is off"), "{why}");
    let (_, why) = of(&[("NCCL_RAS_ADDR", "no such host:x")]);
    assert!(why.contains("cannot connect"), "{why}");
    let sleeper = Sleeper::with(&[]);
    let (report, _) = ask_now(&sleeper.target("other"));
    assert!(report.why.contains("no process of the job can be read"), "{}", report.why);
    let creating = Target { creating: true, ..sleeper.target("train") };
    let (report, _) = ask_now(&creating);
    assert_eq!(report.address, "localhost:28028");
    assert!(report.why.contains("creating a communicator"), "{}", report.why);
}

#[test]
fn one_query_serves_all_requests_of_a_short_time() {
    let sleeper = Sleeper::with(&[("NCCL_RAS_ADDR", "127.0.0.1:1")]);
    let (target, now) = (sleeper.target("train"), Instant::now());
    let mut ras = Ras::default();
    for number in [1, 2, 2] {
        assert_eq!(ras.want(target.clone(), &viewer(number), now), None);
    }
    assert_eq!(ras.asking.len(), 1);
    let reported = answered(&mut ras);
    assert_eq!(reported.viewers, [viewer(1), viewer(2)]);
    let again = Answered { viewers: vec![viewer(3)], ..reported };
    assert_eq!(ras.want(target.clone(), &viewer(3), Instant::now()), Some(again));
    assert_eq!(ras.want(target, &viewer(3), Instant::now() + RECENT), None, "it is asked again");
}

#[test]
fn a_recent_answer_is_sent_again_unchanged() {
    let (answer_tx, answer) = mpsc::channel();
    let (job, now) = (JobName::from("train"), Instant::now());
    let came = (RasReport { job: job.clone(), ..RasReport::default() }, b"{}".to_vec());
    let mut ras = Ras::default();
    ras.asking.push(Asking { job: job.clone(), viewers: vec![viewer(1)], answer, since: now });
    answer_tx.send(came).unwrap();
    assert_eq!(ras.turn(now).pop().unwrap().raw, b"{}");
    let target = Target { job, pids: Vec::new(), creating: false };
    let again = ras.want(target, &viewer(2), now).unwrap();
    assert_eq!((again.viewers, again.raw), (vec![viewer(2)], b"{}".to_vec()));
    assert!(ras.turn(now + RECENT).is_empty() && ras.recent.is_empty(), "up to 16 MiB are not kept for long");
}

#[test]
fn abandoned_threads_still_count() {
    let sleeper = Sleeper::with(&[("NCCL_RAS_ADDR", "127.0.0.1:1")]);
    let mut ras = Ras::default();
    let threads: Vec<_> = (0..AT_ONCE).map(|_| Arc::clone(&ras.threads)).collect();
    let refused = ras.want(sleeper.target("train"), &viewer(1), Instant::now()).unwrap();
    assert!(refused.report.why.contains("try again") && ras.asking.is_empty(), "{}", refused.report.why);
    drop(threads);
    assert_eq!(ras.want(sleeper.target("train"), &viewer(1), Instant::now()), None);
    answered(&mut ras);
    assert_eq!(Arc::strong_count(&ras.threads), 1, "it has ended");
}

#[test]
fn a_service_that_does_not_answer_in_time_is_abandoned() {
    let (_kept, answer) = mpsc::channel();
    let (job, since) = (JobName::from("a"), Instant::now());
    let mut ras = Ras::default();
    ras.asking.push(Asking { job, viewers: vec![viewer(1)], answer, since });
    assert!(ras.turn(since).is_empty());
    let reported = ras.turn(since + LIMIT).pop().unwrap();
    assert!(reported.report.why.contains("did not answer in time") && ras.asking.is_empty());
}
