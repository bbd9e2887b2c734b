use std::{path::PathBuf, sync::mpsc};

use xpu_simulation::Simulation;
use xpu_wire::frame::{
    CaptureAccount, CaptureAnswer, CaptureEnd, CaptureOutcome, CapturePart, Frame, StepMark,
};

use super::*;
use crate::live::Order;

const PLAN: Plan = Plan {
    what: Wanted::Steps(2),
    begin: Begin::Soon,
    before: 0,
    activity: false,
    functions: false,
    functions_only: false,
    python: None,
    wait: Duration::from_secs(20),
    watch: false,
};

/// A rank that answers each order with `outcome`, and sends the data it agreed to.
fn answer(
    ordered: &mpsc::Receiver<Order>,
    arrivals: &tokio::sync::mpsc::Sender<Arrival>,
    outcome: impl Fn(usize) -> CaptureOutcome,
) -> Vec<CaptureOrder> {
    let send = |body| {
        let frame = Frame { host: "a".into(), number: 0, now: Moment::now(), lost: 0, body };
        arrivals.blocking_send(Arrival::Frame(Box::new(frame))).is_ok()
    };
    let mut orders: Vec<CaptureOrder> = Vec::new();
    while let Ok(asked) = ordered.recv() {
        let Order::Capture { job, order, .. } = asked else { continue };
        if orders.contains(&order) {
            continue;
        }
        let outcome = outcome(orders.len());
        orders.push(order);
        let completed = Step(order.first.0 + 50);
        let (number, rank) = (order.number, Rank(0));
        send(Body::CaptureAnswer(CaptureAnswer { number, job: job.clone(), rank, completed, outcome }));
        if outcome != CaptureOutcome::Agreed {
            continue;
        }
        let mark = |completed| StepMark { completed: Step(completed), at: Moment(completed) };
        let marks = (order.first.0 - 1..=order.last().0).map(mark).collect();
        let account = CaptureAccount { marks, ended: CaptureEnd::Done, ..CaptureAccount::default() };
        let part = CapturePart {
            number,
            job,
            rank,
            part: 0,
            parts: 1,
            account: Some(account),
            since: Moment(0),
            labels: Vec::new(),
            operations: Vec::new(),
        };
        send(Body::CapturePart(part));
    }
    orders
}

/// A job of one rank.
fn followed() -> (Following, JobName) {
    let mut following = Following::new([], None);
    for frame in Simulation::new(1, 1, 1).snapshots(4) {
        following.take(Arrival::Frame(Box::new(frame)));
    }
    let job = following.jobs().iter().next().expect("a job").name().clone();
    (following, job)
}

fn fresh_path() -> PathBuf {
    // Under nextest, two processes may each have a thread with the same number. Under cargo, two threads may
    // share one process.
    let (process, thread) = (std::process::id(), std::thread::current().id());
    let path = std::env::temp_dir().join(format!("xpu-top-taking-{process}-{thread:?}"));
    let _ = std::fs::remove_file(&path);
    path
}

fn within_runtime<T>(body: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(body)
}

fn request<'r>(path: &'r Path, header: &'r Header, job: JobName) -> Request<'r> {
    Request { path, header, job, ranks: vec![Rank(0)], plan: PLAN, stop: Stop::default() }
}

/// The result of a capture of one rank, and its orders.
fn take(outcome: impl Fn(usize) -> CaptureOutcome + Send) -> (Outcome, Vec<CaptureOrder>, Vec<CaptureEvent>) {
    let (mut following, job) = followed();
    let (live, ordered) = Live::disconnected();
    let (sender, mut arrivals) = tokio::sync::mpsc::channel(64);
    let path = fresh_path();
    let header = crate::recording_writer::header(Some(&job), &[]);
    let mut news = Vec::new();
    let mut report = |one| news.push(one);
    let (outcome, orders) = std::thread::scope(|scope| {
        let rank = scope.spawn(move || answer(&ordered, &sender, outcome));
        let taking = Taking::begin(request(&path, &header, job), &mut following, &live, &mut report);
        let taken = within_runtime(taking.expect("a new file").take(&mut arrivals));
        // The rank gets no more orders.
        drop(live);
        (taken.expect("it was written"), rank.join().expect("it ended"))
    });
    let _ = std::fs::remove_file(&path);
    (outcome, orders, news)
}

#[test]
fn a_rank_past_the_step_gets_a_later_one_once() {
    let (outcome, orders, news) = take(|tries| match tries {
        0 => CaptureOutcome::TooLate,
        _ => CaptureOutcome::Agreed,
    });
    assert_eq!((outcome.whole, &outcome.complaints[..]), (1, &[][..]), "{outcome:?}");
    let [first, second] = orders[..] else { panic!("{orders:?}") };
    assert!(second.first.0 > first.first.0 + 50, "beyond what the rank said: {orders:?}");
    assert!(news.contains(&CaptureEvent::Word(
        "a rank has already passed that step: all ranks record a later one".to_owned()
    )));
}

#[test]
fn a_rank_that_is_always_past_the_step_is_missing() {
    let (outcome, orders, _) = take(|_| CaptureOutcome::TooLate);
    assert_eq!((outcome.whole, orders.len()), (0, 2));
    assert!(outcome.complaints[0].starts_with("rank 0: it had already completed step "), "{outcome:?}");
}

#[test]
fn an_error_before_any_data_leaves_no_file() {
    let (mut following, job) = followed();
    let (live, _ordered) = Live::disconnected();
    let (sender, mut arrivals) = tokio::sync::mpsc::channel(64);
    // Ends the connection to the collectors.
    drop(sender);
    let path = fresh_path();
    let header = crate::recording_writer::header(Some(&job), &[]);
    let mut report = |_| {};
    let taking = Taking::begin(request(&path, &header, job), &mut following, &live, &mut report);
    assert!(path.exists());
    let error = within_runtime(taking.expect("a new file").take(&mut arrivals)).expect_err("it cannot be");
    assert_eq!(error.to_string(), FOLLOWER_ENDED);
    assert!(!path.exists(), "the next try may have its name");
}
