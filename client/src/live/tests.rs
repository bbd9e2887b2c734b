use std::{
    net::TcpListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use xpu_net::socket;
use xpu_simulation::Simulation;
use xpu_wire::{
    codec,
    frame::{Body, Frame},
};
use zmq::{Context, DONTWAIT, SNDMORE};

use super::*;
use crate::arrival::Link;

/// Longer than all waits of a connection together.
const DEADLINE: Duration = Duration::from_secs(20);

/// The topic of the details of rank 0.
const DETAILS: &str = "llama-70b/r/0/";

/// Three free neighbouring ports.
fn free_base() -> BasePort {
    for _ in 0..1000 {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        if let Some(base) = BasePort::new(port)
            && [base.data(), base.control()]
                .iter()
                .all(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok())
        {
            return base;
        }
    }
    panic!("no free ports")
}

fn endpoint(base: BasePort) -> Endpoint {
    Endpoint { host: "127.0.0.1".to_owned(), base, ssh: None }
}

/// Answers every request with a snapshot and publishes digests, as a collector does.
struct PretendCollector {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl PretendCollector {
    fn start(base: BasePort, key: Option<&Key>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let reported = Arc::clone(&stop);
        let context = Context::new();
        let control = socket::control_server(&context, key).unwrap();
        control.bind(&format!("tcp://127.0.0.1:{}", base.control())).unwrap();
        let data = socket::publisher(&context, key).unwrap();
        data.bind(&format!("tcp://127.0.0.1:{}", base.data())).unwrap();
        let thread = thread::spawn(move || {
            let simulation = Simulation::new(3, 1, 2);
            let mut number = 0;
            while !reported.load(Relaxed) {
                if let Ok(parts) = control.recv_multipart(DONTWAIT) {
                    let answer = codec::encode(&simulation.snapshots(1)[0]);
                    control.send_multipart([&parts[0], &answer], 0).unwrap();
                }
                number += 1;
                let frame = Frame { number, ..simulation.digests(number)[0].clone() };
                data.send("llama-70b/o", SNDMORE).unwrap();
                data.send(codec::encode(&frame), 0).unwrap();
                data.send(DETAILS, SNDMORE).unwrap();
                let detail = Frame { host: "details".into(), ..frame.clone() };
                data.send(codec::encode(&detail), 0).unwrap();
                data.send("other/o", SNDMORE).unwrap();
                data.send(codec::encode(&frame), 0).unwrap();
                thread::sleep(Duration::from_millis(5));
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for PretendCollector {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let _ = self.thread.take().map(thread::JoinHandle::join);
    }
}

fn until<T>(arrivals: &mut Arrivals, what: &str, mut wanted: impl FnMut(Arrival) -> Option<T>) -> T {
    let deadline = Instant::now() + DEADLINE;
    while Instant::now() < deadline {
        match arrivals.try_recv() {
            Ok(arrival) => {
                if let Some(found) = wanted(arrival) {
                    return found;
                }
            }
            Err(_) => thread::sleep(Duration::from_millis(2)),
        }
    }
    panic!("waited in vain for {what}")
}

fn down(arrival: Arrival) -> Option<String> {
    match arrival {
        Arrival::Link(_, Link::Down { why }) => Some(why),
        _ => None,
    }
}

fn up(arrival: Arrival) -> Option<()> {
    matches!(arrival, Arrival::Link(_, Link::Up)).then_some(())
}

#[test]
fn a_host_that_answers_is_up_and_its_jobs_are_subscribed_to() {
    let base = free_base();
    let _collector = PretendCollector::start(base, None);
    let (_live, mut arrivals) = connect(vec![endpoint(base)], None, None);
    until(&mut arrivals, "the snapshot, before any digest", |arrival| match arrival {
        Arrival::Frame(frame) => Some(frame).filter(|frame| matches!(frame.body, Body::Snapshot(_))),
        Arrival::Name(..) => None,
        Arrival::Link(_, link) => {
            assert_eq!(link, Link::Connecting);
            None
        }
    });
    until(&mut arrivals, "up", up);
    let mut digests = 0;
    until(&mut arrivals, "digests without loss", |arrival| {
        let Arrival::Frame(frame) = arrival else { return None };
        assert_eq!(frame.lost, 0);
        digests += u32::from(matches!(frame.body, Body::Digest(_)));
        (digests == 20).then_some(())
    });
}

#[test]
fn a_resubscribed_topic_has_lost_no_frames() {
    let base = free_base();
    let _collector = PretendCollector::start(base, None);
    let (live, mut arrivals) = connect(vec![endpoint(base)], None, None);
    let mut number = 0;
    for _ in 0..2 {
        live.watch_ranks(Some(WatchedRanks { job: "llama-70b".into(), ranks: BTreeSet::from([Rank(0)]) }));
        number = until(&mut arrivals, "details", |arrival| {
            let Arrival::Frame(frame) = arrival else { return None };
            assert_eq!(frame.lost, 0, "{frame:?}");
            (frame.host.as_str() == "details" && frame.number > number).then_some(frame.number + 50)
        });
        live.watch_ranks(None);
        until(&mut arrivals, "the time in which nobody subscribed", |arrival| {
            let Arrival::Frame(frame) = arrival else { return None };
            (frame.host.as_str() != "details" && frame.number > number).then_some(())
        });
    }
}

#[test]
fn a_refusal_is_reported_with_its_reason_and_withdrawn_later() {
    let base = free_base();
    let (_live, mut arrivals) = connect(vec![endpoint(base)], None, None);
    let why = until(&mut arrivals, "down", down);
    assert!(why.contains(&format!("no collector listens on 127.0.0.1:{}", base.control())), "{why}");
    let collector = PretendCollector::start(base, None);
    until(&mut arrivals, "up", up);
    drop(collector);
    until(&mut arrivals, "down again", down);
    let _collector = PretendCollector::start(base, None);
    until(&mut arrivals, "up again", up);
}

#[test]
fn a_wrong_key_is_distinguished_from_an_absent_collector() {
    let base = free_base();
    let key = Key::generate().unwrap();
    let _collector = PretendCollector::start(base, Some(&key));
    let (_live, mut arrivals) = connect(vec![endpoint(base)], None, None);
    let why = until(&mut arrivals, "down", down);
    assert!(why.contains("its key differs"), "{why}");
    let (_live, mut arrivals) = connect(vec![endpoint(base)], Some(key), None);
    until(&mut arrivals, "up", up);
}

#[test]
fn only_the_named_job_is_followed() {
    let base = free_base();
    let _collector = PretendCollector::start(base, None);
    let (_live, mut arrivals) = connect(vec![endpoint(base)], None, Some("absent".into()));
    let mut snapshots = 0;
    until(&mut arrivals, "two snapshots", |arrival| {
        let Arrival::Frame(frame) = arrival else { return None };
        // Other jobs are known by name, but not followed.
        let Body::Snapshot(snapshot) = frame.body else { panic!("{frame:?}") };
        assert_eq!(snapshot.jobs.len(), 1);
        snapshots += 1;
        (snapshots == 2).then_some(())
    });
}

#[test]
fn the_thread_ends_when_its_receiver_is_dropped() {
    let (live, arrivals) = connect(vec![endpoint(free_base())], None, None);
    drop(arrivals);
    let deadline = Instant::now() + DEADLINE;
    while live.orders.send(Order::WatchRanks(None)).is_ok() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
}
