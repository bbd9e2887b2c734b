//! The promises between the sources. Each is tested on the smallest part that could break it.

use loom::{cell::UnsafeCell, model::Builder, sync::Arc, thread};

use super::{
    communicator::{CommunicatorLine, Writers}, free::Free, progress::Progress, ring::Ring, sync::Relaxed, owner::LaneOwner, thread::ThreadLine,
};
use crate::{collective::Operation, id::CommunicatorId, ledger::{self, Call}, unit::Moment};

/// Tries all orders with at most two switches away from a thread that could continue.
///
/// In each model the writer is the first thread. The reason: loom tries other orders only at a load that
/// follows a store, and a thread that only writes its own counters loads them first.
fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(run);
}

/// The ring has space for two records. Of three that are pushed, the last may be dropped.
pub(crate) fn records_arrive_whole_and_in_order() {
    model(|| {
        let ring = Arc::new(Ring::<u64>::new(2).unwrap());
        let reader = thread::spawn({
            let ring = Arc::clone(&ring);
            move || (0..2).filter_map(|_| ring.pop()).collect::<Vec<_>>()
        });
        (1..=3).for_each(|n| _ = ring.push(n));
        let mut seen = reader.join().unwrap();
        seen.extend(std::iter::from_fn(|| ring.pop()));
        assert_eq!(seen.len() as u64 + ring.dropped(), 3);
        assert!(seen.is_sorted() && seen.starts_with(&[1, 2]), "{seen:?}");
    });
}

/// The launching thread fills a pair and pushes it; the hook's thread reads it and returns it, repeatedly.
pub(crate) fn a_pair_is_one_threads_at_a_time() {
    struct Timers {
        free: Free<1>,
        pair: UnsafeCell<u64>,
        ring: Ring<u16>,
    }
    model(|| {
        let timers =
            Arc::new(Timers { free: Free::new(), pair: UnsafeCell::new(0), ring: Ring::new(2).unwrap() });
        let reader = thread::spawn({
            let timers = Arc::clone(&timers);
            move || {
                for _ in 0..2 {
                    if let Some(number) = timers.ring.pop() {
                        // SAFETY: the model checks this: loom finds two threads in one cell.
                        assert!(timers.pair.with(|pair| unsafe { *pair }) > 0);
                        timers.free.give_back(number);
                    }
                }
            }
        });
        for n in 1..=2 {
            if let Some(number) = timers.free.take(|number| (number == 0).then_some(true)) {
                // SAFETY: as above.
                timers.pair.with_mut(|pair| unsafe { *pair = n });
                timers.ring.push(number);
            }
        }
        reader.join().unwrap();
    });
}

/// Three threads request the lane. The first thread returns it.
pub(crate) fn a_lane_is_one_threads_at_a_time() {
    struct Lane {
        owner: LaneOwner,
        group: UnsafeCell<u32>,
    }
    impl Lane {
        fn lend(&self, thread: u32) -> bool {
            let mine = self.owner.lend(thread);
            if mine {
                // SAFETY: as in the model before.
                self.group.with_mut(|group| unsafe { *group = thread });
            }
            mine
        }
    }
    model(|| {
        let lane = Arc::new(Lane { owner: LaneOwner::nobody(), group: UnsafeCell::new(0) });
        let others = [2, 3].map(|thread| {
            let lane = Arc::clone(&lane);
            thread::spawn(move || _ = lane.lend(thread))
        });
        if lane.lend(1) {
            lane.owner.leave();
        }
        for other in others {
            other.join().unwrap();
        }
    });
}

/// One thread launches two collectives, which are done at once.
pub(crate) fn a_done_call_was_enqueued_and_entered() {
    const ID: CommunicatorId = CommunicatorId(7);
    for writers in [Writers::One, Writers::Many] {
        model(move || {
            let line = Arc::new(CommunicatorLine::default());
            assert!(line.open(ID, 0, 2));
            let reader = thread::spawn({
                let line = Arc::clone(&line);
                move || line.read().unwrap()
            });
            for n in 1..=2 {
                line.enter(ID, 1, Operation::AllReduce, n, Moment(n), writers);
                line.enqueue(ID, 1, writers);
                line.complete(ID, n - 1);
            }
            let reading = reader.join().unwrap();
            assert!(reading.completed <= reading.enqueued && reading.enqueued <= reading.entered, "{reading:?}");
            assert!(reading.last_bytes >= reading.entered && reading.last_at.0 >= reading.entered, "{reading:?}");
        });
    }
}

/// A second thread launches on a stream that never ends, while another waits for the first stream.
/// (`progress` is compiled with the real ledger's `Writers`.)
pub(crate) fn a_stream_proves_what_ran_there() {
    const ENDS: u64 = 64;
    const NEVER_ENDS: u64 = 128;
    for writers in [ledger::Writers::One, ledger::Writers::Many] {
        model(move || {
            let progress = Arc::new(Progress::default());
            progress.advance(writers, Some(ENDS), 1, 0);
            let waits = thread::spawn({
                let progress = Arc::clone(&progress);
                move || progress.proven_by(|stream| stream == ENDS)
            });
            progress.advance(writers, Some(NEVER_ENDS), 1, 0);
            assert!([None, Some(1)].contains(&waits.join().unwrap()));
        });
    }
}

/// Two threads launch graphs with collectives of the same communicator.
pub(crate) fn no_launch_is_lost() {
    model(|| {
        let progress = Arc::new(Progress::default());
        let other = thread::spawn({
            let progress = Arc::clone(&progress);
            move || progress.advance(ledger::Writers::Many, None, 2, 0)
        });
        let before = progress.advance(ledger::Writers::Many, None, 1, 3);
        assert!([(0, 1), (2, 0)].contains(&(before, other.join().unwrap())));
        assert_eq!((progress.next(true), progress.next(false)), (3, 3));
    });
}

/// A line is closed and opened for another communicator while it is read.
pub(crate) fn a_line_shows_one_communicator() {
    model(|| {
        let line = Arc::new(CommunicatorLine::default());
        assert!(line.open(CommunicatorId(7), 7, 70));
        line.enter(CommunicatorId(7), 7, Operation::AllReduce, 7, Moment(7), Writers::One);
        let reader = thread::spawn({
            let line = Arc::clone(&line);
            move || line.read()
        });
        line.close();
        assert!(line.open(CommunicatorId(9), 9, 90));
        line.enter(CommunicatorId(9), 9, Operation::AllGather, 9, Moment(9), Writers::One);
        if let Some(reading) = reader.join().unwrap() {
            let owner = reading.id.0;
            assert_eq!((u64::from(reading.rank), u64::from(reading.size)), (owner, owner * 10), "{reading:?}");
            assert!([0, owner].contains(&reading.entered), "{reading:?}");
            assert!([0, owner].contains(&reading.last_bytes), "{reading:?}");
        }
    });
}

/// Two communicators are made at the same time, or two threads request a line, and one line is free.
pub(crate) fn a_free_line_goes_to_one() {
    fn race<T: Default + Sync + Send + 'static>(take: fn(&T, u64) -> bool) {
        model(move || {
            let line = Arc::new(T::default());
            let other = thread::spawn({
                let line = Arc::clone(&line);
                move || take(&line, 7)
            });
            let mine = take(&line, 9);
            assert_ne!(mine, other.join().unwrap());
        });
    }
    race(|line: &CommunicatorLine, id| line.open(CommunicatorId(id), 0, 2));
    race(|line: &ThreadLine, thread| line.claim(thread as u32));
}

/// A thread counts for a communicator that no longer exists, and whose line belongs to another one. The
/// hook's own thread can do this, when it learns late that a collective is complete.
pub(crate) fn nobody_counts_for_the_next() {
    const GONE: CommunicatorId = CommunicatorId(7);
    let late = |count: fn(&CommunicatorLine)| {
    model(move || {
        let line = Arc::new(CommunicatorLine::default());
        assert!(line.open(GONE, 7, 70));
        let late = thread::spawn({
            let line = Arc::clone(&line);
            move || count(&line)
        });
        line.close();
        assert!(line.open(CommunicatorId(9), 9, 90));
        late.join().unwrap();
        let reading = line.read().unwrap();
        assert_eq!([reading.entered, reading.enqueued, reading.completed, reading.point_to_point], [0; 4]);
    });
    };
    late(|line| line.complete(GONE, 41));
    late(|line| line.enqueue(GONE, 41, Writers::Many));
    late(|line| {
        line.enter(GONE, 41, Operation::AllReduce, 1, Moment(1), Writers::Many);
    });
    late(|line| line.point_to_point(GONE, 41, Writers::Many));
}

/// A thread leaves one call and enters another while it is watched.
pub(crate) fn a_call_is_shown_with_its_own_beginning() {
    model(|| {
        let line = Arc::new(ThreadLine::default());
        assert!(line.claim(42));
        let reader = thread::spawn({
            let line = Arc::clone(&line);
            move || line.read()
        });
        line.enter(Call::Collective, Moment(1));
        line.leave();
        line.enter(Call::GroupEnd, Moment(2));
        if let Some(reading) = reader.join().unwrap() {
            let began = if reading.call == Call::Collective { 1 } else { 2 };
            assert_eq!((reading.thread, reading.since), (42, Moment(began)), "{reading:?}");
        }
    });
}
