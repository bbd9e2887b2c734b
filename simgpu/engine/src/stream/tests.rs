use std::time::Duration;

use super::*;
use crate::process::Thread;

const MS: Duration = Duration::from_millis(1);

fn stream() -> Arc<Stream> {
    Stream::new(1, 0, Kind::NonBlocking)
}

fn recorded(stream: &Arc<Stream>) -> Arc<Mark> {
    let event = Event::new(true, 0);
    stream.record(&event).expect("no thread is needed");
    match event.last() {
        Last::Recorded(mark) => mark,
        other => panic!("{other:?}"),
    }
}

#[test]
fn back_to_back_work_takes_exactly_its_durations() {
    let stream = stream();
    let before = recorded(&stream).wait_resolved();
    stream.submit(Node::Work(500 * MS, Task::Set { bytes: 0 })).expect("no thread is needed");
    stream.submit(Node::Work(700 * MS, Task::Set { bytes: 0 })).expect("no thread is needed");
    let after = recorded(&stream).wait_resolved();
    // Exact except for the time that the launches took: the first kernel started when it was launched.
    let took = after.since(before);
    assert!(took >= 1200 * MS && took < 1300 * MS, "{took:?}");
    assert!(!stream.is_done(Moment::now()), "the timeline runs ahead of the clock");
    assert!(stream.is_done(after));
}

#[test]
fn an_idle_stream_starts_at_launch_not_at_its_last_end() {
    let stream = stream();
    stream.submit(Node::Work(Duration::ZERO, Task::Set { bytes: 0 })).expect("no thread is needed");
    std::thread::sleep(5 * MS);
    let launched = Moment::now();
    assert!(recorded(&stream).wait_resolved() >= launched);
}

#[test]
fn a_wait_for_an_unresolved_mark_holds_back_what_is_queued_behind_it() {
    let stream = stream();
    let mark = Arc::new(Mark::default());
    stream.wait(Arc::clone(&mark)).expect("a thread");
    stream.submit(Node::Work(3 * MS, Task::Set { bytes: 0 })).expect("a thread");
    let end = recorded(&stream);
    assert_eq!(end.resolved(), None);
    assert!(!stream.is_done(Moment::from_ns(u64::MAX)));
    let reached = Moment::now().after(50 * MS);
    mark.resolve(reached);
    assert_eq!(end.wait_resolved(), reached.after(3 * MS));
}

#[test]
fn the_next_launch_waits_when_a_stream_is_full() {
    let stream = stream();
    let start = Moment::now();
    for _ in 0..DEPTH + 30 {
        stream.submit(Node::Work(MS, Task::Set { bytes: 0 })).expect("no thread is needed");
    }
    assert!(Moment::now().since(start) >= 29 * MS);
}

#[test]
fn captured_work_is_recorded_and_not_run() {
    let captures = crate::capture::Captures::default();
    let me = Thread::current();
    let stream = stream();
    captures.begin(&stream, crate::capture::Mode::Global, me, 0);
    stream.submit(Node::Work(MS, Task::Set { bytes: 0 })).expect("no thread is needed");
    let capture = stream.capture().expect("it is being captured");
    assert!(stream.is_done(Moment::now()));
    assert_eq!(captures.end(&capture).map(|nodes| nodes.len()), Some(1));
    assert!(stream.capture().is_none());
}

#[test]
fn an_unsafe_call_of_another_thread_spoils_a_global_capture_unless_relaxed() {
    use crate::capture::{Captures, Mode};
    let captures = Captures::default();
    let me = Thread::current();
    let other = std::thread::spawn(Thread::current).join().expect("it only answers");
    for (mode, caller, ends_well) in [
        (Mode::Global, Mode::Relaxed, true),
        (Mode::ThreadLocal, Mode::Global, true),
        (Mode::Global, Mode::Global, false),
    ] {
        let stream = stream();
        captures.begin(&stream, mode, me, 0);
        assert_eq!(captures.allow_unsafe(other, caller), ends_well);
        let capture = stream.capture().expect("it is being captured");
        assert_eq!(captures.end(&capture).is_some(), ends_well, "{mode:?} {caller:?}");
    }
}
