//! Records of ranks that diverge, and of ranks that do not.

use xpu_wire::{
    collective::Operation::{self, AllReduce, Broadcast, Recv, Send},
    datatype::DataType,
    frame::{CallSite, CallState, RecordedCall, RecordedCommunicator, StackFrame},
    id::Pid,
};

use super::*;

const BUCKET: u64 = 4 << 20;

/// A rank's deviation.
type Change = fn(&mut RecordedCall);

/// One rank's record being built.
#[derive(Clone)]
struct Calls {
    record: RankRecord,
    numbers: BTreeMap<(u16, Operation, Option<u32>), u64>,
}

impl Calls {
    fn of(rank: u32, world: u32) -> Self {
        let mut record = RankRecord::unread("train".into(), Rank(rank), Pid(100 + rank), String::new());
        let named = |id, name: &str| RecordedCommunicator {
            id: CommunicatorId(id),
            name: name.to_owned(),
            member: rank,
            size: world,
            closed: false,
        };
        record.communicators = vec![named(0xdada_dada << 32, "dp"), named(0x7e7e_7e7e << 32, "tp")];
        Self { record, numbers: BTreeMap::new() }
    }

    fn call(&mut self, communicator: u16, operation: Operation, bytes: u64, line: u32) -> &mut RecordedCall {
        self.with(communicator, operation, None, bytes, line)
    }

    fn with(
        &mut self,
        communicator: u16,
        operation: Operation,
        peer: Option<u32>,
        bytes: u64,
        line: u32,
    ) -> &mut RecordedCall {
        let collective = operation.is_collective();
        let key =
            (communicator, if collective { AllReduce } else { operation }, peer.filter(|_| !collective));
        let number = self.numbers.entry(key).or_default();
        *number += 1;
        let frame = |function: &str, file: &str, line| StackFrame {
            function: function.to_owned(),
            file: file.to_owned(),
            line,
        };
        let site = CallSite {
            frames: vec![
                frame("all_reduce", "torch/distributed/distributed_c10d.py", 2500),
                frame(if line == 212 { "log_metrics" } else { "train" }, "/work/train.py", line),
            ],
            returns_to: 7,
            native: String::new(),
        };
        let site = self.record.sites.iter().position(|known| *known == site).unwrap_or_else(|| {
            self.record.sites.push(site);
            self.record.sites.len() - 1
        });
        let order = self.record.made;
        self.record.made += 1;
        self.record.calls.push(RecordedCall {
            order,
            communicator,
            number: Some(*number - 1),
            operation,
            datatype: DataType::Float32,
            reduction: (operation == AllReduce).then_some(0),
            peer,
            bytes,
            replays: 0,
            group: None,
            stream: 1,
            entered: Moment(order * 1000),
            state: CallState::Enqueued,
            site: Some(site as u16),
        });
        self.record.calls.last_mut().unwrap()
    }

    /// A training loop's calls in a step.
    fn step(&mut self) {
        for bucket in 0..3 {
            self.call(0, AllReduce, BUCKET + bucket, 131);
        }
        self.call(1, Broadcast, 4096, 140).peer = Some(0);
    }
}

/// Ranks that make the same calls; `with` adds calls of some ranks.
fn ranks(world: u32, mut with: impl FnMut(u32, &mut Calls)) -> Vec<RankRecord> {
    (0..world)
        .map(|rank| {
            let mut calls = Calls::of(rank, world);
            for _ in 0..5 {
                calls.step();
            }
            with(rank, &mut calls);
            calls.record
        })
        .collect()
}

fn found(records: &[RankRecord]) -> Divergence {
    first(records.iter(), &BTreeSet::new(), true).expect("they diverge")
}

fn is(found: &Divergence, kind: DivergenceKind, ranks: &[u32]) {
    let named: Vec<_> = found.ranks.iter().map(|rank| rank.0).collect();
    assert_eq!((found.kind, &named[..]), (kind, ranks), "{}", found.sentence);
}

#[test]
fn equal_calls_do_not_diverge() {
    for world in [2, 3, 8] {
        let records = ranks(world, |_, _| ());
        assert_eq!(first(records.iter(), &BTreeSet::new(), true), None);
        // A call that one record no longer contains is not missing there.
        let mut cut = records.clone();
        cut[0].calls.drain(..7);
        assert_eq!(first(cut.iter(), &BTreeSet::new(), true), None);
    }
}

#[test]
fn an_extra_call_is_attributed_to_its_rank() {
    for world in [2, 3, 8] {
        let records = ranks(world, |rank, calls| {
            if rank == 1 {
                calls.call(0, AllReduce, 492, 212);
            }
            calls.step();
        });
        let found = found(&records);
        is(&found, DivergenceKind::Extra, &[1]);
        let words = "rank 1 called one AllReduce (492 B of f32) more, number 15 of communicator dadadada (dp), at train.py:212 log_metrics";
        assert!(found.sentence.contains(words), "{}", found.sentence);
        assert!(found.sentence.contains("never do"), "{}", found.sentence);
        assert!(found.calls[0].new && !found.calls[1].new, "{:?}", found.calls);
    }
}

/// The rank waits for the result and does not reach the others' calls, so its call may be extra, or replace
/// another one.
#[test]
fn an_extra_call_is_reported_before_the_rank_continues() {
    for world in [2, 8] {
        let records = ranks(world, |rank, calls| {
            if rank == 1 {
                calls.call(0, AllReduce, 492, 212);
            } else {
                calls.step();
            }
        });
        let found = found(&records);
        is(&found, DivergenceKind::Size, &[1]);
        assert!(
            found.sentence.contains("rank 1 called AllReduce (492 B of f32) at train.py:212 log_metrics")
        );
        let never = if world == 2 { "rank 0 never calls" } else { "the 7 others never call" };
        assert!(found.sentence.contains(&format!("{never} from that call site")), "{}", found.sentence);
    }
}

/// Only the call sites distinguish them.
#[test]
fn an_extra_call_equal_to_the_others_is_reported_by_its_call_site() {
    for world in [2, 8] {
        let records = ranks(world, |rank, calls| {
            if rank == 1 {
                calls.call(0, AllReduce, BUCKET, 212);
            }
            for _ in 0..4 {
                calls.call(0, AllReduce, BUCKET, 131);
            }
        });
        is(&found(&records), DivergenceKind::Extra, &[1]);
    }
}

#[test]
fn an_omitted_call_is_attributed_to_its_rank() {
    let with_norm = |world| {
        ranks(world, |rank, calls| {
            for step in 0..4 {
                calls.step();
                if (rank, step) != (1, 3) {
                    calls.call(0, AllReduce, 4, 150);
                }
            }
            calls.step();
        })
    };
    for world in [2, 3, 8] {
        let found = found(&with_norm(world));
        is(&found, DivergenceKind::LeftOut, &[1]);
        assert!(
            found.sentence.contains("rank 1 left out AllReduce (4 B of f32) at train.py:150 train"),
            "{}",
            found.sentence
        );
    }
}

/// The others wait for the call that the rank left out, as for an asynchronous one. The rank called what they usually
/// call next, and perhaps more.
#[test]
fn a_call_left_out_is_reported_before_the_others_go_on() {
    for (world, later) in [(2, 1), (3, 1), (8, 1), (2, 3), (8, 3)] {
        let records = ranks(world, |rank, calls| {
            for _ in 0..3 {
                calls.call(0, AllReduce, 4, 150);
                calls.step();
            }
            if rank == 1 {
                for bucket in 0..later {
                    calls.call(0, AllReduce, BUCKET + bucket, 131);
                }
            } else {
                calls.call(0, AllReduce, 4, 150);
            }
        });
        let found = found(&records);
        is(&found, DivergenceKind::LeftOut, &[1]);
        let words = "rank 1 left out AllReduce (4 B of f32) at train.py:150 train, number 27 of communicator dadadada (dp), \
            which rank 0 called; it called AllReduce (4 MiB of f32) at train.py:131 train there";
        let words = if world == 2 { words } else { &words[..words.len().min(70)] };
        assert!(found.sentence.contains(words), "{}", found.sentence);
    }
}

#[test]
fn another_size_type_root_reduction_and_operation_are_reported() {
    let differing = |change: Change| {
        ranks(8, |rank, calls| {
            let call = calls.call(0, Broadcast, 4096, 160);
            call.peer = Some(0);
            if rank == 5 {
                change(call);
            }
            calls.step();
        })
    };
    let cases: [(Change, DivergenceKind, &str); 5] = [
        (
            |call| call.bytes = 4100,
            DivergenceKind::Size,
            "rank 5 called Broadcast (4,100 B of f32, root 0) at train.py:160 train where the 7 others called",
        ),
        (|call| call.datatype = DataType::Int32, DivergenceKind::Type, "(4 KiB of i32, root 0)"),
        (|call| call.peer = Some(3), DivergenceKind::Root, "(4 KiB of f32, root 3)"),
        (|call| call.reduction = Some(4), DivergenceKind::Reduction, "average"),
        (|call| call.operation = AllReduce, DivergenceKind::Operation, "called AllReduce"),
    ];
    for (change, kind, words) in cases {
        let found = found(&differing(change));
        is(&found, kind, &[5]);
        assert!(found.sentence.contains(words), "{}", found.sentence);
    }
}

/// With equal numbers on both sides, the side with a new call is named; if both calls have precedents, both
/// sides are named.
#[test]
fn the_one_of_two_ranks_with_a_new_call_is_named() {
    let mut records = ranks(2, |rank, calls| {
        calls.call(0, AllReduce, if rank == 0 { BUCKET } else { 77 }, 131);
    });
    is(&found(&records), DivergenceKind::Size, &[1]);
    records = ranks(2, |rank, calls| {
        let sizes = if rank == 0 { [5, 9, 9] } else { [9, 5, 9] };
        for bytes in [5, 9, 5, 9].into_iter().chain(sizes) {
            calls.call(0, AllReduce, bytes, 131);
        }
    });
    let both = found(&records);
    assert_eq!((both.by, both.ranks.len()), (By::Nothing, 2), "{}", both.sentence);
    assert!(both.sentence.contains("rank 0") && both.sentence.contains("rank 1"), "{}", both.sentence);
}

#[test]
fn a_collective_that_ended_everywhere_blocks_no_rank() {
    let mut records = ranks(8, |rank, calls| {
        calls.call(0, AllReduce, 64, 170).datatype =
            if rank == 5 { DataType::Int32 } else { DataType::Float32 };
        calls.step();
    });
    for call in records.iter_mut().flat_map(|record| &mut record.calls) {
        call.state = CallState::Done;
    }
    let passed = found(&records);
    is(&passed, DivergenceKind::Type, &[5]);
    assert!(passed.passed);
    // The unfinished call comes first.
    for record in &mut records {
        let mut last = record.calls.iter().rev().find(|call| call.communicator == 0).unwrap().clone();
        last.number = last.number.map(|number| number + 1);
        (last.order, last.state) = (last.order + 9, CallState::Enqueued);
        last.bytes = if record.rank == Rank(2) { 8 } else { 16 };
        record.calls.push(last);
        record.made += 1;
    }
    is(&found(&records), DivergenceKind::Size, &[2]);
}

#[test]
fn another_order_of_two_communicators_is_reported() {
    for world in [2, 8] {
        let records = ranks(world, |rank, calls| {
            for step in 0..4 {
                let order = if (rank, step) == (1, 3) { [1, 0] } else { [0, 1] };
                for communicator in order {
                    calls.call(communicator, AllReduce, 64, 180 + u32::from(communicator));
                }
                for call in &mut calls.record.calls {
                    if step < 3 {
                        call.state = CallState::Done;
                    }
                }
            }
        });
        let found = found(&records);
        is(&found, DivergenceKind::Order, &[1]);
        assert!(
            found.sentence.contains("train.py:181 train of communicator 7e7e7e7e before its next call of"),
            "{}",
            found.sentence
        );
    }
    // In one group the order does not matter.
    let mut grouped = ranks(2, |rank, calls| {
        for communicator in if rank == 1 { [1, 0] } else { [0, 1] } {
            calls.call(communicator, AllReduce, 64, 180);
        }
    });
    for record in &mut grouped {
        for call in record.calls.iter_mut().rev().take(2) {
            call.group = Some(20);
        }
    }
    assert_eq!(first(grouped.iter(), &BTreeSet::new(), true), None);
}

/// Two ranks that train, log and validate as in `tests/gpu/hangs.py`. Rank 1 makes its last call instead of
/// the step, or after it.
fn two_that_log(wrong: impl Fn(&mut Calls) -> bool) -> Vec<RankRecord> {
    let steps = 12;
    let step = |calls: &mut Calls, wrong: &dyn Fn(&mut Calls) -> bool| {
        calls.call(0, Broadcast, 4, 168).peer = Some(0);
        for bucket in 0..3 {
            calls.call(0, AllReduce, BUCKET + bucket, 131);
        }
        calls.call(0, AllReduce, 496, 212);
        if wrong(calls) {
            return;
        }
        calls.call(1, AllReduce, 4000, 60);
    };
    (0..2)
        .map(|rank| {
            let mut calls = Calls::of(rank, 2);
            for _ in 0..steps {
                step(&mut calls, &|_| false);
            }
            calls.record.calls.iter_mut().for_each(|call| call.state = CallState::Done);
            step(&mut calls, &|calls: &mut Calls| rank == 1 && wrong(calls));
            calls.record
        })
        .collect()
}

/// On real GPUs, rank 0 was named, although it continued with the other communicator as usual.
#[test]
fn an_extra_call_before_another_communicator_is_attributed_to_its_rank() {
    let records = two_that_log(|calls| {
        calls.call(0, AllReduce, 492, 214);
        false
    });
    let found = found(&records);
    is(&found, DivergenceKind::Extra, &[1]);
    assert!(
        found.sentence.contains("(492 B of f32) at train.py:214 train, for the first time,"),
        "{}",
        found.sentence
    );
}

/// On real GPUs, both ranks were named.
#[test]
fn a_skipped_step_is_attributed_to_its_rank() {
    let records: Vec<_> = [0, 1]
        .map(|rank| {
            let mut calls = Calls::of(rank, 2);
            for last in [vec![false; 12], vec![true]].concat() {
                calls.call(0, Broadcast, 4, 168).peer = Some(0);
                if last && rank == 1 {
                    calls.call(0, Broadcast, 4, 168).peer = Some(0);
                    break;
                }
                for bucket in 0..3 {
                    calls.call(0, AllReduce, BUCKET + bucket, 131);
                }
            }
            calls.record
        })
        .into();
    let found = found(&records);
    assert_eq!(found.ranks, [Rank(1)], "{}", found.sentence);
    assert!(found.sentence.contains("for the first time after those calls"), "{}", found.sentence);
}

/// On real GPUs, rank 0 was named, although it has never received anything.
#[test]
fn a_send_in_a_job_without_sends_is_attributed_to_the_sender() {
    let records = two_that_log(|calls| {
        calls.with(0, Send, Some(0), 496, 217);
        true
    });
    let found = found(&records);
    is(&found, DivergenceKind::Unmatched, &[1]);

    // On real GPUs, rank 1 was said not to have entered a later call: both records had lost their first calls.
    let mut cut = records;
    for record in &mut cut {
        record.calls.drain(..7);
    }
    assert_ne!(
        first(cut.iter(), &BTreeSet::new(), true).map(|found| found.kind),
        Some(DivergenceKind::Unmatched)
    );
    let found = first(cut.iter(), &[Rank(0)].into(), true).expect("they diverge");
    is(&found, DivergenceKind::Unmatched, &[1]);
}

/// Calls outside of Python, from `train`: each rank has a build of it with other offsets.
fn without_python(mut records: Vec<RankRecord>, build: impl Fn(Rank) -> u32) -> Vec<RankRecord> {
    for record in &mut records {
        let base = build(record.rank);
        for site in &mut record.sites {
            site.native = format!("train+{:#x}", base + site.frames[1].line);
            site.frames.clear();
        }
    }
    records
}

#[test]
fn calls_outside_python_are_compared_by_their_native_sites() {
    let records = ranks(4, |rank, calls| {
        for step in 0..6 {
            calls.call(0, AllReduce, BUCKET, 131);
            if (rank, step) == (1, 5) {
                calls.call(0, AllReduce, 492, 0xd4);
            }
            calls.call(0, AllReduce, 64, 140);
        }
    });
    let same = found(&without_python(records.clone(), |_| 0));
    is(&same, DivergenceKind::Extra, &[1]);
    assert!(same.sentence.contains(", at train+0xd4; the 3 others never do"), "{}", same.sentence);
    // Builds with other offsets cannot be compared.
    let others = found(&without_python(records, |rank| 0x1000 * rank.0));
    is(&others, DivergenceKind::Extra, &[1]);
    assert!(!others.sentence.contains("never"), "{}", others.sentence);
}

/// Each rank receives from the one before and sends to the next, then the same backward. In the last step, a
/// rank that `changes` leaves out the forward send.
fn forward_and_backward(steps: u32, changes: impl Fn(u32) -> bool) -> Vec<RankRecord> {
    ranks(4, |rank, calls| {
        for step in 0..steps {
            let last = step + 1 == steps;
            if rank > 0 {
                calls.with(0, Recv, Some(rank - 1), 512, 190);
            }
            // The stages after rank 1 wait for the message that it does not send.
            if last && rank > 1 {
                return;
            }
            let skips = last && changes(rank);
            if rank < 3 && !skips {
                calls.with(0, Send, Some(rank + 1), 512, 191);
            }
            if rank < 3 {
                calls.with(0, Recv, Some(rank + 1), 640, 192);
            }
            if last {
                return;
            }
            if rank > 0 {
                calls.with(0, Send, Some(rank - 1), 640, 193);
            }
        }
    })
}

#[test]
fn the_rank_of_a_cycle_that_left_its_pattern_is_named() {
    let found = found(&forward_and_backward(8, |rank| rank == 1));
    is(&found, DivergenceKind::Unmatched, &[1]);
    assert_eq!(found.by, By::Novelty);
    assert_eq!(found.ends, [(Rank(2), Some(found.ends[0].1.unwrap())), (Rank(1), None)]);
    let begin = "rank 1 called Recv from 2 (640 B of f32) at train.py:192 train instead of its usual call and waits for rank 2; rank 2 waits in Recv from 1 (512 B of f32) at train.py:190";
    assert!(found.sentence.starts_with(begin), "{}", found.sentence);
}

#[test]
fn all_ranks_of_a_cycle_from_the_start_are_named() {
    let both = ranks(2, |rank, calls| {
        calls.with(0, Recv, Some(1 - rank), 512, 190);
    });
    let found = found(&both);
    is(&found, DivergenceKind::Unmatched, &[0, 1]);
    assert_eq!(found.by, By::Nothing);
    let begin = "ranks 0, 1 wait for a message of each other: rank 0 in Recv from 1 (512 B of f32)";
    assert!(found.sentence.starts_with(begin), "{}", found.sentence);
}

#[test]
fn a_send_without_its_receive_is_attributed_to_the_absent_receiver() {
    let records = ranks(4, |rank, calls| {
        // A pipeline: each rank but the last sends to the next.
        for micro in 0..4 {
            let skips = (rank, micro) == (2, 3);
            if rank > 0 && !skips {
                calls.with(0, Recv, Some(rank - 1), 512, 190);
            }
            if rank < 3 && !skips {
                calls.with(0, Send, Some(rank + 1), 512, 191);
            }
        }
    });
    let found = found(&records);
    is(&found, DivergenceKind::Unmatched, &[2]);
    assert!(
        found.sentence.starts_with("rank 2 did not call the ")
            && found.sentence.contains("(512 B of f32) at train.py:19"),
        "{}",
        found.sentence
    );
    let sizes = ranks(2, |rank, calls| {
        for bytes in [8, 8, if rank == 0 { 9 } else { 8 }] {
            let (operation, peer) = if rank == 0 { (Send, 1) } else { (Recv, 0) };
            calls.with(0, operation, Some(peer), bytes, 195);
        }
    });
    is(&self::found(&sizes), DivergenceKind::Size, &[0]);
}

#[test]
fn an_absent_rank_is_distinguished_from_an_extra_call() {
    for world in [2, 8] {
        let records = ranks(world, |rank, calls| {
            if rank != 1 {
                calls.call(0, AllReduce, BUCKET, 131);
            }
        });
        let late = found(&records);
        is(&late, DivergenceKind::NotEntered, &[1]);
        // While the ranks run, the call may follow a moment later.
        assert_eq!(first(records.iter(), &BTreeSet::new(), false), None);
        assert!(late.sentence.contains("at train.py:131 train"), "{}", late.sentence);
    }
}

#[test]
fn a_shift_from_before_the_record_has_no_call_site() {
    let mut records = ranks(2, |rank, calls| {
        if rank == 1 {
            calls.call(0, AllReduce, 492, 212);
        }
        for _ in 0..9 {
            calls.step();
        }
    });
    for record in &mut records {
        record.calls.retain(|call| call.communicator == 1 || call.number >= Some(18));
        record.made = 2048;
    }
    let found = found(&records);
    assert!(
        found.sentence.contains("one call apart; this began before the first recorded call, number 18"),
        "{}",
        found.sentence
    );
    assert_eq!(found.ranks.len(), 2);
}

/// A CUDA graph counts as its number of collectives, about which nothing else is known.
#[test]
fn graphs_are_compared_as_wholes() {
    let with = |differing: u32| {
        ranks(3, |rank, calls| {
            let call = calls.call(0, AllReduce, 0, 0);
            (call.replays, call.site) = (if rank == 1 { differing } else { 4 }, None);
            let after = calls.numbers.get_mut(&(0, AllReduce, None)).unwrap();
            *after += 3;
            calls.step();
        })
    };
    assert_eq!(first(with(4).iter(), &BTreeSet::new(), true), None);
    is(&found(&with(3)), DivergenceKind::Operation, &[1]);
}
