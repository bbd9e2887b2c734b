//! Tests of the collector over real sockets.

// A helper that cannot go on panics, as a test does.
#![allow(clippy::unwrap_used)]

mod lab;

use std::{
    fs, io::Write as _, net::TcpStream, os::unix::fs::PermissionsExt as _, process::Command as Program,
    time::Duration,
};

use lab::{Lab, until};
use xpu_collector::{Collector, OpenError};
use xpu_model::expected::{self, Expected};
use xpu_net::key::Key;
use xpu_wire::{
    codec,
    frame::{Body, Command, Event, Life, RankStacks, Request},
    id::{Pid, Rank},
    unit::Moment,
};
use zmq::DONTWAIT;

#[test]
fn a_late_viewer_sees_two_jobs_and_then_what_changes() {
    let lab = Lab::started(None);
    let (mut a, mut b) = (lab.worker("a", 0), lab.worker("b", 1));
    for worker in [&mut a, &mut b] {
        worker.hello();
        worker.step();
    }
    let viewer = lab.viewer(None);
    until("both jobs", || {
        (viewer.sees() == [("a".into(), 0, Life::Alive, Some(1)), ("b".into(), 1, Life::Alive, Some(1))])
            .then_some(())
    });
    viewer.data.set_subscribe(b"a/o").unwrap();
    a.step();
    b.step();
    let mut last = None;
    until("step 2 in two digests in a row", || {
        let (topic, frame) = viewer.published()?;
        assert_eq!(topic, "a/o");
        assert_eq!(frame.host.as_str(), lab.config.host.as_str());
        assert!(last.is_none_or(|last| frame.number == last + 1), "frame numbers have no gap");
        let seen_before = last.replace(frame.number).is_some();
        let Body::Digest(digest) = frame.body else { panic!("{frame:?}") };
        (seen_before && digest.ranks[0].step.is_some_and(|step| step.0 == 2)).then_some(())
    });
}

#[test]
fn details_go_to_subscribers_of_that_rank() {
    let lab = Lab::started(None);
    let (mut one, mut ten) = (lab.worker("a", 1), lab.worker("a", 10));
    one.hello();
    ten.hello();
    let viewer = lab.viewer(None);
    viewer.data.set_subscribe(b"a/r/1/").unwrap();
    until("a detail of rank 1", || {
        one.step();
        ten.step();
        let (topic, frame) = viewer.published()?;
        assert_eq!(topic, "a/r/1/");
        matches!(frame.body, Body::Detail(detail) if detail.rank.0 == 1).then_some(())
    });
}

#[test]
fn a_worker_may_be_there_before_the_collector() {
    let mut lab = Lab::new(None);
    lab.config.runtime.prepare().unwrap();
    let mut worker = lab.worker("a", 0);
    worker.hello();
    worker.step();
    lab.start();
    let viewer = lab.viewer(None);
    until("its step", || (viewer.sees() == [("a".into(), 0, Life::Alive, Some(1))]).then_some(()));
}

#[test]
fn a_new_collector_asks_the_workers_of_the_old_one_to_introduce_themselves() {
    let mut lab = Lab::started(None);
    let mut worker = lab.worker("a", 0);
    worker.hello();
    worker.step();
    let viewer = lab.viewer(None);
    until("its step", || (viewer.sees() == [("a".into(), 0, Life::Alive, Some(1))]).then_some(()));
    lab.stop();
    lab.start();
    until("the question", || {
        worker.step();
        std::thread::sleep(Duration::from_millis(20));
        matches!(worker.received(), Some(Body::Command(Command::Introduce))).then_some(())
    });
    worker.hello();
    worker.step();
    until("it is back", || (viewer.sees().len() == 1).then_some(()));
}

#[test]
fn a_goodbye_is_an_end_and_a_kill_is_a_death() {
    let lab = Lab::started(None);
    let mut child = Program::new("sleep").arg("60").spawn().unwrap();
    let (mut orderly, mut killed) = (lab.worker("a", 0), lab.worker("a", 1));
    killed.info.pid = Pid(child.id());
    for worker in [&mut orderly, &mut killed] {
        worker.hello();
        worker.step();
    }
    let viewer = lab.viewer(None);
    until("both", || (viewer.sees().len() == 2).then_some(()));
    viewer.data.set_subscribe(b"a/").unwrap();
    orderly.say(Body::Goodbye);
    child.kill().unwrap();
    child.wait().unwrap();
    until("both ends", || {
        (viewer.sees().iter().map(|seen| seen.2).collect::<Vec<_>>() == [Life::Ended, Life::Died])
            .then_some(())
    });
    until("the event of the death", || {
        let (_, frame) = viewer.published()?;
        matches!(frame.body, Body::Event(Event::Life { life: Life::Died, .. })).then_some(())
    });
}

#[test]
fn garbage_on_every_socket_harms_nothing() {
    let lab = Lab::started(None);
    let garbage: Vec<Vec<u8>> = {
        let mut all: Vec<Vec<u8>> = vec![vec![], vec![0; 3], vec![0xff; 4096], b"xput".to_vec()];
        let good = codec::encode(&xpu_wire::frame::Frame {
            host: "x".into(),
            number: 0,
            now: Moment(0),
            lost: 0,
            body: Body::Request(Request::Snapshot),
        });
        all.extend((0..good.len()).map(|end| good[..end].to_vec()));
        let mut newer = good.clone();
        newer[4] = 99;
        let mut unknown = good;
        unknown[6] = 200;
        all.extend([newer, unknown]);
        all
    };
    let worker = lab.worker("a", 0);
    let viewer = lab.viewer(None);
    for bytes in &garbage {
        worker.socket.send(bytes, DONTWAIT).unwrap();
        viewer.control.send(bytes, DONTWAIT).unwrap();
    }
    // A worker's message on the viewers' socket, and a viewer's on the workers'.
    worker.socket.send_multipart([&b"a"[..], b"", b"b"], DONTWAIT).unwrap();
    for address in [lab.data(), lab.control()] {
        for bytes in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0xff; 512],
            &[0; 64],
            b"\x01\x00",
            b"\xff\0\0\0\0\0\0\0\x01\x7f\x03",
        ] {
            TcpStream::connect(address).unwrap().write_all(bytes).unwrap();
        }
    }
    until("a refusal that says what is wrong", || {
        let parts = viewer.control.recv_multipart(DONTWAIT).ok()?;
        let frame = codec::decode(parts.last()?).ok()?;
        matches!(frame.body, Body::Refusal(text) if text.contains("same xpu-top version")).then_some(())
    });
    let (mut worker, viewer) = (lab.worker("a", 0), lab.viewer(None));
    worker.hello();
    worker.step();
    until("it serves on", || (viewer.sees() == [("a".into(), 0, Life::Alive, Some(1))]).then_some(()));
}

#[test]
fn a_request_with_a_delimiter_is_answered_with_one() {
    let lab = Lab::started(None);
    let viewer = lab.viewer(None);
    let frame = xpu_wire::frame::Frame {
        host: "v".into(),
        number: 0,
        now: Moment(0),
        lost: 0,
        body: Body::Request(Request::Snapshot),
    };
    viewer.control.send_multipart([&b""[..], &codec::encode(&frame)], DONTWAIT).unwrap();
    let parts = until("the answer", || viewer.control.recv_multipart(DONTWAIT).ok());
    assert_eq!((parts.len(), parts[0].len()), (2, 0));
}

#[test]
fn the_switch_reaches_only_the_workers_of_that_job() {
    let lab = Lab::started(None);
    let (mut a, mut b) = (lab.worker("a", 0), lab.worker("b", 0));
    a.hello();
    b.hello();
    let viewer = lab.viewer(None);
    until("both", || (viewer.sees().len() == 2).then_some(()));
    viewer.ask(Request::Enable { job: "a".into(), on: false });
    until("the command", || (a.received() == Some(Body::Command(Command::Enable(false)))).then_some(()));
    assert_eq!(b.received(), None);
    viewer.ask(Request::Enable { job: "nobody".into(), on: false });
    until("the refusal", || {
        let parts = viewer.control.recv_multipart(DONTWAIT).ok()?;
        let frame = codec::decode(parts.last()?).ok()?;
        matches!(frame.body, Body::Refusal(text) if text.contains("job nobody has no rank")).then_some(())
    });
}

/// The next frame on control that is not a snapshot.
fn next_body(viewer: &lab::Viewer) -> Body {
    until("an answer", || {
        let parts = viewer.control.recv_multipart(DONTWAIT).ok()?;
        let body = codec::decode(parts.last()?).unwrap().body;
        (!matches!(body, Body::Snapshot(_))).then_some(body)
    })
}

fn stacks(viewer: &lab::Viewer) -> RankStacks {
    match next_body(viewer) {
        Body::Stacks(stacks) => stacks,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_request_for_stacks_gets_one_frame_per_rank() {
    let lab = Lab::started(None);
    let mut child = Program::new("sleep").arg("600").spawn().unwrap();
    let mut workers: Vec<_> = (0..3).map(|rank| lab.worker("a", rank)).collect();
    workers[1].info.pid = Pid(child.id());
    workers[2].info.pid = Pid(u32::MAX);
    workers.iter_mut().for_each(lab::Worker::hello);
    let [viewer, other] = [lab.viewer(None), lab.viewer(None)];
    until("the ranks", || (viewer.sees().len() == 3).then_some(()));

    // Both ask at once. Each gets only its own answer, and neither waits for the other.
    other.ask(Request::Stacks { job: "a".into(), ranks: vec![Rank(1)], kept: false, natively: false });
    viewer.ask(Request::Stacks { job: "a".into(), ranks: vec![], kept: false, natively: false });
    let mut all: Vec<_> = (0..3).map(|_| stacks(&viewer)).collect();
    all.sort_by_key(|stacks| stacks.rank);
    assert!(all.iter().all(|stacks| stacks.job.as_str() == "a"), "{all:?}");
    assert_eq!((all[1].rank, all[1].pid, all[1].threads.len()), (Rank(1), Pid(child.id()), 1));
    assert!(all[0].threads.iter().any(|thread| thread.main), "{:?}", all[0]);
    assert!(all[2].why[0].contains("cannot be seen from here"), "{:?}", all[2]);
    assert_eq!(stacks(&other).rank, Rank(1));

    child.kill().unwrap();
    child.wait().unwrap();
    viewer.ask(Request::Stacks { job: "a".into(), ranks: vec![Rank(1)], kept: false, natively: false });
    assert!(stacks(&viewer).why[0].contains("is gone"));
    viewer.ask(Request::Stacks { job: "b".into(), ranks: vec![], kept: false, natively: false });
    assert!(matches!(next_body(&viewer), Body::Refusal(why) if why.contains("job b has no rank")));
}

/// A reader hangs, as one does whose process hangs in the kernel. It is killed, and all viewers are served
/// meanwhile.
#[test]
fn a_hung_reader_blocks_nothing() {
    let mut lab = Lab::new(None);
    let script = lab.config.runtime.path().with_extension("reader");
    fs::write(&script, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    lab.config.reader = script.clone();
    lab.start();
    let mut worker = lab.worker("a", 0);
    worker.hello();
    let viewer = lab.viewer(None);
    until("the rank", || (viewer.sees().len() == 1).then_some(()));
    viewer.ask(Request::Stacks { job: "a".into(), ranks: vec![], kept: false, natively: false });
    assert!(viewer.snapshot().is_some(), "it serves while the reader hangs");
    let said = stacks(&viewer);
    assert!(said.why[0].contains("took longer than"), "{said:?}");
    fs::remove_file(script).unwrap();
}

/// A viewer with a failed reading does not ask again.
#[test]
fn stacks_that_replace_a_failed_reading_reach_all_viewers() {
    let mut lab = Lab::new(None);
    let [script, works] = ["reader", "works"].map(|end| lab.config.runtime.path().with_extension(end));
    let reader = lab.config.reader.display();
    fs::write(&script, format!("#!/bin/sh\ntest -e {} && exec {reader} \"$@\"\n", works.display())).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    lab.config.reader = script.clone();
    lab.start();
    let mut worker = lab.worker("a", 0);
    worker.hello();
    let [first, second] = [lab.viewer(None), lab.viewer(None)];
    until("the rank", || (first.sees().len() == 1).then_some(()));
    first.data.set_subscribe(b"a/").unwrap();
    until("the subscription", || first.published());
    let ask = |viewer: &lab::Viewer| {
        viewer.ask(Request::Stacks { job: "a".into(), ranks: vec![], kept: false, natively: true });
        stacks(viewer)
    };
    assert!(ask(&first).has_failed());
    fs::write(&works, "").unwrap();
    let new = ask(&second);
    assert!(!new.has_failed(), "{new:?}");
    let published = until("published stacks", || match first.published()?.1.body {
        Body::Stacks(stacks) => Some(stacks),
        _ => None,
    });
    assert_eq!(published, new);
    for file in [script, works] {
        fs::remove_file(file).unwrap();
    }
}

#[test]
fn only_clients_with_the_key_are_answered() {
    let key = Key::generate().unwrap();
    let lab = Lab::started(Some(key.clone()));
    let mut worker = lab.worker("a", 0);
    worker.hello();
    worker.step();
    let friend = lab.viewer(Some(&key));
    let strangers = [lab.viewer(None), lab.viewer(Some(&Key::generate().unwrap()))];
    for stranger in &strangers {
        stranger.ask(Request::Snapshot);
        stranger.data.set_subscribe(b"").unwrap();
    }
    friend.data.set_subscribe(b"a/o").unwrap();
    until("the friend's picture", || (friend.sees().len() == 1).then_some(()));
    let mut digests = 0;
    until("three digests for the friend", || {
        digests += u32::from(friend.published().is_some());
        (digests == 3).then_some(())
    });
    for stranger in &strangers {
        assert!(stranger.control.recv_multipart(DONTWAIT).is_err());
        assert!(stranger.data.recv_multipart(DONTWAIT).is_err());
    }
}

#[test]
fn a_second_collector_finds_the_socket_taken() {
    let mut lab = Lab::started(None);
    let second = Collector::open(lab.config.clone(), Moment::now()).err().unwrap();
    assert!(second.is_served_already(), "{second}");
    // Another runtime directory with the same ports represents another user's collector.
    let mut other = Lab::new(None);
    other.config.address = lab.config.address;
    let taken = Collector::open(other.config.clone(), Moment::now()).err().unwrap();
    assert!(matches!(taken, OpenError::Tcp { .. }) && taken.to_string().contains("--base-port"), "{taken}");
    lab.stop();
    assert!(!lab.socket_path().exists());
    Collector::open(lab.config.clone(), Moment::now()).unwrap();
}

#[test]
fn a_stale_socket_is_no_obstacle() {
    let mut lab = Lab::new(None);
    lab.config.runtime.prepare().unwrap();
    drop(std::os::unix::net::UnixListener::bind(lab.socket_path()).unwrap());
    assert!(lab.socket_path().exists());
    lab.start();
    let (mut worker, viewer) = (lab.worker("a", 0), lab.viewer(None));
    worker.hello();
    until("the rank", || (viewer.sees().len() == 1).then_some(()));
}

/// A job may load for minutes before its first CUDA call.
#[test]
fn it_waits_for_a_process_that_was_announced() {
    let mut lab = Lab::new(None);
    lab.config.idle_exit = Some(Duration::from_millis(300));
    lab.start();
    let mut slow = Program::new("sleep").arg("60").spawn().unwrap();
    let expected = Expected { pid: Pid(slow.id()), job: "slow".into(), rank: None };
    expected::announce(&lab.config.runtime, lab.config.base, &expected).unwrap();
    let mut idle = Lab::new(None);
    idle.config.idle_exit = Some(Duration::from_secs(1));
    idle.start();
    until("another to end that waits for nobody", || (!idle.socket_path().exists()).then_some(()));
    assert!(lab.socket_path().exists(), "the collector ended while a job was loading");
    slow.kill().unwrap();
    slow.wait().unwrap();
    until("its end", || (!lab.socket_path().exists()).then_some(()));
}

#[test]
fn an_idle_collector_ends_by_itself() {
    let mut lab = Lab::new(None);
    lab.config.idle_exit = Some(Duration::from_millis(500));
    lab.start();
    until("its end", || (!lab.socket_path().exists()).then_some(()));
}
