use xpu_wire::frame::example::stacks::{rank, thread};
use xpu_wire::{frame::Inside, ledger::Call, unit::Nanoseconds};

use super::*;
use crate::stack::{folded, text};

/// Seven ranks wait in a collective, the sixth is blocked elsewhere.
fn held() -> Vec<RankStacks> {
    let mut all: Vec<_> = (0..8).map(|n| rank(n, &["main", "train", "synchronize"])).collect();
    all[6] = rank(6, &["main", "train", "wait_on_disk"]);
    for stack in &mut all {
        if stack.rank != Rank(6) {
            let inside = Inside { thread: 7, call: Call::StreamSynchronize, waited: Nanoseconds(5) };
            stack.threads[0].inside = Some(inside);
        }
        stack.threads.push(thread("pt_autograd_0", false, &[]));
        stack.threads.push(thread("pt_autograd_1", false, &[]));
    }
    all
}

#[test]
fn branches_with_few_ranks_come_first() {
    assert_eq!(
        text(&merge([], &held())),
        "\
main thread: ranks 0-7
  main (job/train.py:3)
  train (job/train.py:3)
  ├─ rank 6; not 0-5,7
  │  wait_on_disk (job/train.py:3)
  └─ ranks 0-5,7; not 6
     synchronize (job/train.py:3)
     in cudaStreamSynchronize
thread pt_autograd_* (no Python): ranks 0-7; 16 threads
  sleeping in futex, kernel futex_wait_queue
"
    );
}

#[test]
fn folded_lines_name_present_and_missing_ranks() {
    let folded = folded(&merge([], &held()));
    let lines: Vec<_> = folded.lines().collect();
    assert_eq!(
        lines[0],
        "main thread@0-7|;main@/job/train.py:3@0-7|;train@/job/train.py:3@0-7|;\
         wait_on_disk@/job/train.py:3@6|0-5,7 1"
    );
    assert!(lines[1].ends_with(";in cudaStreamSynchronize@0-5,7|6 7"), "{}", lines[1]);
    assert_eq!(lines.len(), 3);
}

#[test]
fn the_order_of_the_answers_does_not_matter() {
    let mut shuffled = held();
    shuffled.reverse();
    shuffled.swap(1, 4);
    assert_eq!(merge([], &shuffled), merge([], &held()));
}

#[test]
fn a_rank_that_did_not_answer_is_missing_everywhere() {
    let tree = merge((0..9).map(Rank), &held());
    assert_eq!(tree.ranks.to_string(), "0-8");
    assert_eq!(tree.roots[0].missing.to_string(), "8");
}

#[test]
fn a_process_that_is_gone_or_stopped_comes_before_all_threads() {
    let mut all = held();
    all[2].state = Some('T');
    all[3] = RankStacks::unread("train".into(), Rank(3), xpu_wire::id::Pid(3), "gone".into());
    let tree = merge([], &all);
    let said = text(&tree);
    assert!(said.starts_with("process: ranks 2-3; not 0-1,4-7\n"), "{said}");
    assert!(said.contains("├─ rank 2; not 0-1,3-7\n  │  stopped by a signal\n"), "{said}");
    assert_eq!(tree.roots[1].here.to_string(), "0-2,4-7");
}

#[test]
fn a_stack_that_ends_above_others_is_marked() {
    let said = text(&merge([], &[rank(0, &["main"]), rank(1, &["main", "train"])]));
    assert!(said.contains("└─ rank 0: innermost frame is here"), "{said}");
}

#[test]
fn the_same_function_at_another_line_is_another_place() {
    let mut other = rank(1, &["main", "train"]);
    other.threads[0].frames[0].line = 4;
    let tree = merge([], &[rank(0, &["main", "train"]), other]);
    assert_eq!(tree.roots[0].children.len(), 2);
}

#[test]
fn names_cannot_break_a_folded_line() {
    let said = folded(&merge([], &[rank(0, &["a;b|c\nd"])]));
    assert_eq!(said.lines().count(), 1);
    assert!(said.contains("a:b c d@/job/train.py:3@0|"), "{said}");
}

#[test]
fn a_thousand_ranks_make_one_tree() {
    let all: Vec<_> =
        (0..1024).map(|n| rank(n, &["main", if n % 512 == 3 { "odd" } else { "same" }])).collect();
    let tree = merge([], &all);
    let main = &tree.roots[0].children[0];
    assert_eq!(main.children[0].here.to_string(), "3,515");
    assert_eq!(main.children[1].here.len(), 1022);
}
